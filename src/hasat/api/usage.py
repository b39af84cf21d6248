"""Usage by caller and day: counted in memory, written to the database in batches."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import psycopg
import structlog

from hasat.errors import DatabaseError
from hasat.http.routes import Caller
from hasat.store import Store
from hasat.store.queries import load_query

WRITE_INTERVAL_SECONDS = 5.0
MAX_DAYS = 400
_TOO_MANY = 429
_FAILED = 500

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    refused: int = 0
    failed: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Usage:
    """The requests of a caller on one day."""

    caller: str
    name: str | None
    """The name of the key; None for a signing client or a deleted key."""
    day: date
    requests: int
    refused: int
    failed: int
    bytes: int


@dataclass(frozen=True)
class TotalUsage:
    """The requests of a caller on all recorded days."""

    caller: str
    name: str | None
    requests: int
    refused: int
    failed: int
    bytes: int


class UsageCounter:
    """Counts the requests of each key and signing client.

    A process that is killed loses the counts of its last seconds, never a request of a caller.
    """

    def __init__(self, store: Store, zone: str) -> None:
        self._store = store
        self._zone = zone
        self._pending: dict[str, _Counts] = {}
        self._writer: asyncio.Task[None] | None = None

    def record(self, caller: Caller | None, status: int, size: int) -> None:
        """Count one request; local and unknown callers are not counted."""
        if caller is None or caller.is_local:
            return
        counts = self._pending.setdefault(caller.bucket, _Counts())
        counts.requests += 1
        counts.refused += status == _TOO_MANY
        counts.failed += status >= _FAILED
        counts.bytes += size
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_regularly(), name="usage")

    async def _write_regularly(self) -> None:
        while self._pending:
            await asyncio.sleep(WRITE_INTERVAL_SECONDS)
            await self.write()

    async def write(self) -> None:
        """Write what was counted; counts that cannot be written now are written later."""
        counted, self._pending = self._pending, {}
        if not counted:
            return
        values = {
            "zone": self._zone,
            "callers": list(counted),
            **{
                name: [getattr(one, name) for one in counted.values()]
                for name in ("requests", "refused", "failed", "bytes")
            },
        }
        try:
            async with self._store.connection() as conn:
                await conn.execute(load_query("hasat.api", "add_usage"), values)
        except (DatabaseError, psycopg.Error) as error:
            log.debug("usage.not_written", reason=str(error))
            for caller, counts in counted.items():
                later = self._pending.setdefault(caller, _Counts())
                later.requests += counts.requests
                later.refused += counts.refused
                later.failed += counts.failed
                later.bytes += counts.bytes


async def list_usage(
    store: Store, zone: str, *, days: int = 30, caller: str | None = None
) -> Sequence[Usage]:
    """Return the usage of the last days, today included, of one caller or of all."""
    values = {"zone": zone, "days": days, "caller": caller}
    return await store.rows(Usage, load_query("hasat.api", "list_usage"), values)


async def total_usage(store: Store) -> Sequence[TotalUsage]:
    """Return the usage of each caller on all days on record."""
    return await store.rows(TotalUsage, load_query("hasat.api", "total_usage"))
