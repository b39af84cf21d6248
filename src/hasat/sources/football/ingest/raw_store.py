"""Raw responses in raw.api_responses, from which everything else can be rebuilt."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import AsyncConnection, sql
from psycopg.errors import LockNotAvailable
from psycopg.types.json import Jsonb

from hasat.errors import HasatError
from hasat.feed.archive.storage import Storage, storage_of
from hasat.jobs import Outcome, RunContext
from hasat.messages import msg
from hasat.sources.football.endpoints import SOURCE
from hasat.sources.football.ingest.envelope import Envelope, Parsed
from hasat.sources.football.settings import FootballSettings
from hasat.store.queries import load_query

if TYPE_CHECKING:
    from hasat.sources.football.ingest.raw_files import MonthFile

_PACKAGE = "hasat.sources.football"
_FETCH_SIZE = 4
_ARCHIVE_LOCK = 8370142693


@dataclass(frozen=True)
class ApiResponse:
    """A response as received, with the request that it answers."""

    endpoint: str
    parameters: Mapping[str, str]
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    parsed: Parsed | None = field(default=None, compare=False, repr=False)
    order: int | None = None
    """Its place in the order of receipt, if it was held meanwhile; otherwise it is the newest."""


class StoredResponse(NamedTuple):
    """A response in the raw store; `order` rises with each time it is received."""

    order: int
    endpoint: str
    parameters: dict[str, str]
    leagues: list[int] | None
    """The leagues whose records were loaded from it; None for all."""
    vanished: list[int]
    """The matches that it removed from the mirror."""
    at: datetime
    body: str


async def store_response(
    conn: AsyncConnection[Any],
    response: ApiResponse,
    envelope: Envelope,
    *,
    run: int | None,
    leagues: Collection[int] | None = None,
    vanished: Collection[int] = (),
) -> None:
    """Store a response in the caller's transaction.

    `leagues` are the leagues whose records are loaded from it, `vanished` the matches that it
    removes from the mirror.
    """
    await conn.execute("SELECT raw.ensure_month(clock_timestamp())")
    await conn.execute(
        load_query(_PACKAGE, "store_response"),
        {
            "endpoint": f"/{response.endpoint}",
            "parameters": Jsonb(dict(response.parameters)),
            "status": response.status,
            "headers": Jsonb(dict(response.headers)),
            "body": Jsonb(envelope.document),
            "errors": Jsonb(dict(envelope.errors)),
            "results": envelope.results,
            "request_hash": _request_hash(response),
            "body_hash": hashlib.sha256(response.body).digest(),
            "run": run,
            "leagues": None if leagues is None else sorted(leagues),
            "vanished": sorted(vanished) or None,
            "order": response.order,
        },
    )


async def reserve_order(conn: AsyncConnection[Any]) -> int:
    """Return the place in the order of receipt of a response that is not stored yet."""
    cursor = await conn.execute("SELECT nextval('raw.answer_order')")
    [(order,)] = await cursor.fetchall()
    return int(order)


async def iter_stored(conn: AsyncConnection[Any]) -> AsyncGenerator[StoredResponse, None]:
    """Return the responses in the database, the one received last first."""
    async with conn.cursor("newest_responses") as cursor:
        cursor.itersize = _FETCH_SIZE
        await cursor.execute(load_query(_PACKAGE, "newest_responses"))
        async for row in cursor:
            yield StoredResponse(*row)


def _request_hash(response: ApiResponse) -> bytes:
    request = json.dumps([response.endpoint, sorted(response.parameters.items())])
    return hashlib.sha256(request.encode()).digest()


async def archive_months(context: RunContext) -> Outcome:
    """Move every month that is old enough to a Parquet file, one at a time."""
    storage = storage_of(context.settings)
    months: list[str] = []
    responses = 0
    async with context.store.connection() as lock:
        cursor = await lock.execute("SELECT pg_try_advisory_xact_lock(%s)", [_ARCHIVE_LOCK])
        if await cursor.fetchone() != (True,):
            return Outcome("skipped", message=msg("Another process is already moving old months."))
        due = await _old_months(lock, context.settings.section(FootballSettings).raw_retention_days)
        for number, month in enumerate(due):
            await context.progress(number, len(due), f"{month:%Y-%m}")
            moved = await _move(context, storage, month)
            if moved is not None:
                months.append(f"{month:%Y-%m}")
                responses += moved.responses
    return Outcome("done" if months else "nothing", responses, {"months": months})


async def _old_months(conn: AsyncConnection[Any], days: int) -> list[date]:
    cursor = await conn.execute(load_query(_PACKAGE, "old_months"), {"days": days})
    return [month for (month,) in await cursor.fetchall()]


async def _move(context: RunContext, storage: Storage, month: date) -> "MonthFile | None":
    """Move a month from the database to a file; None if it is still in use."""
    # Loading pyarrow takes longer than a run with nothing to move.
    from hasat.sources.football.ingest.raw_files import write_month

    draft_path = f"{SOURCE}_raw/api_responses_{month:%Y_%m}.parquet"
    draft = storage.draft(draft_path)
    file = await asyncio.to_thread(write_month, context.store.url, month, draft)
    # Named by its content, so that a later attempt cannot replace another file.
    path = draft_path.replace(".parquet", f"_{file.last_order}.parquet")
    await asyncio.to_thread(draft.replace, storage.draft(path))
    if file.responses:
        await storage.publish(path)
    try:
        async with context.store.connection() as conn:
            await _drop_partition(conn, month, path, file)
    except (LockNotAvailable, _ChangedError) as error:
        context.log.info("raw_month.deferred", month=str(month), reason=str(error))
        with suppress(HasatError):
            await storage.remove(path)
        return None
    if not file.responses:
        await storage.remove(path)
    return file


class _ChangedError(Exception):
    """The partition changed while its file was written."""


async def _drop_partition(
    conn: AsyncConnection[Any], month: date, path: str, file: "MonthFile"
) -> None:
    """Drop a partition that still equals its file, and record the file."""
    await conn.execute("SET LOCAL lock_timeout = '5s'")
    await conn.execute("LOCK TABLE raw.api_responses IN ACCESS EXCLUSIVE MODE")
    partition = sql.Identifier("raw", f"api_responses_{month:%Y_%m}")
    cursor = await conn.execute(
        sql.SQL("SELECT count(*), coalesce(max(seen_order), 0) FROM {}").format(partition)
    )
    if await cursor.fetchone() != (file.responses, file.last_order):
        raise _ChangedError("the partition changed while its file was written")
    if file.responses:
        await conn.execute(
            load_query(_PACKAGE, "record_archive"), {"path": path, "month": month, **vars(file)}
        )
    await conn.execute(sql.SQL("DROP TABLE {}").format(partition))
