"""The versions of a dataset and their changes as delta files."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import class_row

from hasat.clock import local_time
from hasat.errors import NotFoundError
from hasat.feed.changes import ExpiredError, head_of
from hasat.feed.cursor import Cursor
from hasat.messages import msg
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.feed.archive"
_PAGE = 5_000
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class Version:
    """The effect of a committed run on a dataset, with the feed's current epoch and floor."""

    version: int
    run: int | None
    committed_at: datetime
    epoch: UUID
    seq_before: int
    seq: int
    added: int
    modified: int
    removed: int
    records: int
    digest: bytes
    epoch_now: UUID
    floor: int

    @property
    def is_first_load(self) -> bool:
        """Return whether it loaded the dataset for the first time, which writes no changes."""
        return self.added + self.modified + self.removed > self.seq - self.seq_before

    @property
    def has_changes(self) -> bool:
        """Return whether the feed still has all of its changes."""
        retained = self.seq_before >= self.floor or self.seq == self.seq_before
        return self.epoch == self.epoch_now and retained and not self.is_first_load

    def as_dict(self, dataset: str) -> dict[str, Any]:
        return {
            "version": self.version,
            "run": self.run,
            "committedAt": local_time(self.committed_at),
            "epoch": str(self.epoch),
            "seqBefore": self.seq_before,
            "head": self.seq,
            "added": self.added,
            "modified": self.modified,
            "removed": self.removed,
            "records": self.records,
            "digest": self.digest.hex(),
            "cursor": str(Cursor(dataset, self.epoch, self.seq)),
        }


async def list_versions(
    conn: AsyncConnection[Any], dataset: str, *, after: int, limit: int
) -> Sequence[Version]:
    """Return the versions after a number, in the order of their commits."""
    await head_of(conn, dataset)
    async with conn.cursor(row_factory=class_row(Version)) as cursor:
        await cursor.execute(
            load_query(_PACKAGE, "versions"), {"dataset": dataset, "after": after, "limit": limit}
        )
        return await cursor.fetchall()


async def version_with_changes(conn: AsyncConnection[Any], dataset: str, number: int) -> Version:
    """Return a version whose changes the feed still has."""
    found = await list_versions(conn, dataset, after=number - 1, limit=1)
    if not found or found[0].version != number:
        raise NotFoundError(
            msg("{dataset} has no version {number}.", dataset=dataset, number=number),
            remedy=msg("GET /api/v1/{dataset}/versions lists them.", dataset=dataset),
        )
    version = found[0]
    if version.is_first_load:
        raise ExpiredError(
            dataset,
            msg(
                "Version {number} is the first load of {dataset}: it has no changes.",
                number=number,
                dataset=dataset,
            ),
        )
    if not version.has_changes:
        raise ExpiredError(
            dataset, msg("The changes of version {number} have expired.", number=number)
        )
    return version


async def delta(store: Store, dataset: str, version: Version) -> AsyncIterator[bytes]:
    """Return the version's changes as gzipped NDJSON; the bytes are the same every time."""
    zipped = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    header = {
        "hasat": "delta",
        "dataset": dataset,
        **version.as_dict(dataset),
        "after": str(Cursor(dataset, version.epoch, version.seq_before)),
        "count": version.seq - version.seq_before,
    }
    yield zipped.compress(f"{json.dumps(header, separators=(',', ':'))}\n".encode())
    seq = version.seq_before
    while seq < version.seq:
        values = {"dataset": dataset, "after": seq, "last": version.seq, "limit": _PAGE}
        async with store.connection() as conn:
            rows = await (await conn.execute(load_query(_PACKAGE, "delta"), values)).fetchall()
        if not rows or rows[-1][0] != seq + len(rows):
            # Sequence numbers are dense: a gap means that retention deleted changes meanwhile.
            raise ExpiredError(
                dataset,
                msg("The changes of version {version} just expired.", version=version.version),
            )
        seq = rows[-1][0]
        lines = "".join([f"{line}\n" for _, line in rows]).encode()
        yield await asyncio.to_thread(zipped.compress, lines)
    yield zipped.flush()
