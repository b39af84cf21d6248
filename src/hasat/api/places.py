"""How far those are who follow by cursor, as far as their keys tell."""

import asyncio
from uuid import UUID

import psycopg
import structlog

from hasat.errors import DatabaseError
from hasat.feed.cursor import Cursor
from hasat.http.routes import Caller
from hasat.store import Store
from hasat.store.queries import load_query

_PAUSE_SECONDS = 3.0

log = structlog.get_logger(__name__)


class FollowerPositions:
    """Where each key last was in each dataset; noted in memory, written down in one go soon after.

    Whoever reads without a key cannot be told from others and is not noted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[tuple[str, str], tuple[UUID, int]] = {}
        self._writer: asyncio.Task[None] | None = None

    def note(self, caller: Caller | None, cursor: Cursor) -> None:
        """A caller has everything up to the cursor."""
        if caller is None or not caller.id.startswith("key:"):
            return
        self._noted[caller.id, cursor.dataset] = cursor.epoch, cursor.seq
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name="places of followers")

    async def _write(self) -> None:
        while self._noted:
            await asyncio.sleep(_PAUSE_SECONDS)
            noted, self._noted = self._noted, {}
            values = {
                "sinks": [sink for sink, _ in noted],
                "datasets": [dataset for _, dataset in noted],
                "epochs": [epoch for epoch, _ in noted.values()],
                "seqs": [seq for _, seq in noted.values()],
            }
            try:
                async with self._store.connection() as conn:
                    await conn.execute(load_query("hasat.api", "save_places"), values)
            except (DatabaseError, psycopg.Error) as error:
                # The next question of each tells it again.
                log.debug("the places of followers could not be noted", reason=str(error))
