"""All answers that were kept, in the database and in files, the newest first."""

import hashlib
import heapq
import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from hasat.errors import UnavailableError
from hasat.feed.archive.storage import Storage
from hasat.messages import msg
from hasat.sources.football.months import read_newest_first
from hasat.sources.football.raw import Told, newest_first


class _Archive(NamedTuple):
    path: str
    last_order: int
    size: int
    sha256: bytes


async def all_newest_first(
    conn: AsyncConnection[Any], place: Storage
) -> AsyncGenerator[Told, None]:
    """Every answer in the order in which it last came, turned round."""
    # Until this transaction ends no month can move from the database to a file.
    await conn.execute("LOCK TABLE raw.api_responses IN ACCESS SHARE MODE")
    cursor = await conn.execute("SELECT path, last_order, size, sha256 FROM raw.api_archives")
    files = [_Archive(*row) for row in await cursor.fetchall()]
    async with AsyncExitStack() as open_streams:
        folder = Path(open_streams.enter_context(tempfile.TemporaryDirectory(prefix="hasat-")))
        # A file is opened when its newest answer is due, not before.
        waiting: list[tuple[int, int, Told | None, AsyncGenerator[Told, None]]] = [
            (-one.last_order, number, None, _from_file(place, one, folder / str(number)))
            for number, one in enumerate(files)
        ]
        waiting.append((-(2**63), len(files), None, newest_first(conn)))
        for *_, stream in waiting:
            open_streams.push_async_callback(stream.aclose)
        heapq.heapify(waiting)
        while waiting:
            _, number, told, stream = heapq.heappop(waiting)
            if told is not None:
                yield told
            following = await anext(stream, None)
            if following is not None:
                heapq.heappush(waiting, (-following.order, number, following, stream))


async def _from_file(place: Storage, archive: _Archive, copy: Path) -> AsyncGenerator[Told, None]:
    seen = hashlib.sha256()
    with copy.open("wb") as file:
        async for piece in place.read(archive.path, 0, archive.size):
            seen.update(piece)
            file.write(piece)
    if seen.digest() != archive.sha256:
        raise UnavailableError(
            msg(
                "{path} in {place} is not the file that was written.",
                path=archive.path,
                place=place.label,
            ),
            remedy=msg("Bring the file back from a backup; nothing was changed."),
        )
    for row in read_newest_first(copy):
        yield Told(
            row["seen_order"],
            row["endpoint"].removeprefix("/"),
            json.loads(row["requested_params"]),
            row["leagues"],
            # Files of earlier releases do not have it.
            row.get("vanished") or [],
            row["last_fetched_at"],
            row["body"],
        )
    copy.unlink()
