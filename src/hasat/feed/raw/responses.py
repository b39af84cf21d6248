"""Storing, reading and expiring raw responses."""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from hasat.errors import ConflictError, UnavailableError
from hasat.feed.archive import Storage, storage_of
from hasat.feed.archive.storage import Folder, MissingError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.home import machine_of
from hasat.store.quarantine import storable_text
from hasat.store.queries import load_query

MAX_INLINE_BYTES = 1024 * 1024
"""The largest response that is stored in the database; a larger one is a file."""

_PACKAGE = "hasat.feed.raw"
_STORE = load_query(_PACKAGE, "store_response")


@dataclass(frozen=True)
class RawRequest:
    """The request that a response answers; `key` is the record, None for the whole dataset.

    `request` must not contain a secret: it is the path of the address, or the address without its
    query.
    """

    source: str
    dataset: str
    request: str
    key: str | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredResponse:
    """A response in the raw store."""

    id: int
    key: str | None
    request: str
    status: int
    sha256: bytes
    size: int
    content: bytes | None
    path: str | None
    machine: str | None


async def store_body(
    conn: AsyncConnection[Any], request: RawRequest, body: bytes, *, run: int | None
) -> int:
    """Store a response in the database, in the caller's transaction; return its number."""
    cursor = await conn.execute(_STORE, _body_values(request, body, run))
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def store_body_now(store: Store, request: RawRequest, body: bytes, *, run: int | None) -> int:
    """Store a response in the database in one round trip; return its number.

    If the server crashes, the last moments are lost, unless a later commit waited for the disk.
    """
    values = _body_values(request, body, run) | {"asynchronous": True}
    [row] = await store.write(_STORE, values)
    return int(row[0])


async def store_file(
    store: Store, settings: Settings, request: RawRequest, file: Path, *, run: int | None
) -> int:
    """Store a response that is a file, in transactions of its own; return its number.

    The row is written before the file and completed after it, so that no file is without a row.
    """
    size = file.stat().st_size
    if size <= MAX_INLINE_BYTES:
        body = await asyncio.to_thread(file.read_bytes)
        async with store.connection() as conn:
            return await store_body(conn, request, body, run=run)
    sha256 = await asyncio.to_thread(_sha256, file)
    machine = None if settings.archives.provider == "S3" else machine_of(settings.home)
    values = _values(request, sha256, size, run) | {"machine": machine}
    path = f"raw/{request.source}/{request.dataset}-{sha256.hex()}"
    async with store.connection() as conn:
        cursor = await conn.execute(_STORE, values | {"path": path})
        row = await cursor.fetchone()
    assert row is not None
    number, is_new = int(row[0]), row[1]
    if not is_new:
        return number
    storage = _storage(settings, machine)
    draft = storage.draft(path)
    draft.unlink(missing_ok=True)
    draft.touch(0o600)
    await asyncio.to_thread(shutil.copyfile, file, draft)
    if await asyncio.to_thread(_sha256, draft) != sha256:
        raise ConflictError(msg("{file} changed while it was stored.", file=file.name))
    await storage.publish(path)
    async with store.connection() as conn:
        await conn.execute("UPDATE raw.response SET complete = true WHERE id = %s", [number])
    return number


async def mark_applied(conn: AsyncConnection[Any], number: int) -> None:
    """Record that the records of a response enter the mirror with the caller's transaction."""
    await conn.execute(load_query(_PACKAGE, "mark_applied"), {"id": number})


async def mark_newest_applied(
    conn: AsyncConnection[Any], dataset: str, keys: Collection[str]
) -> None:
    """Record that the newest responses for some records enter the mirror, as `mark_applied`."""
    values = {"dataset": dataset, "keys": list(keys)}
    await conn.execute(load_query(_PACKAGE, "mark_newest_applied"), values)


async def iter_applied(
    conn: AsyncConnection[Any], dataset: str, of: Literal["lists", "records"]
) -> AsyncIterator[StoredResponse]:
    """Return the applied lists, the newest first, or the newest response of every record."""
    async with conn.cursor(f"applied_{of}", row_factory=class_row(StoredResponse)) as cursor:
        cursor.itersize = 100 if of == "records" else 1
        await cursor.execute(load_query(_PACKAGE, f"applied_{of}"), {"dataset": dataset})
        async for row in cursor:
            yield row


async def last_applied_size(conn: AsyncConnection[Any], dataset: str) -> int | None:
    """Return the size of the list that was applied last, if it is stored."""
    cursor = await conn.execute(load_query(_PACKAGE, "last_applied_size"), {"dataset": dataset})
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


@asynccontextmanager
async def open_stored(settings: Settings, response: StoredResponse) -> AsyncIterator[Path]:
    """Return a stored response as a private file with verified content, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="raw-", dir=settings.home))
    copy = folder / "response"
    try:
        if response.content is not None:
            await asyncio.to_thread(copy.write_bytes, response.content)
        else:
            try:
                await _copy_file(settings, response, copy)
            except MissingError:
                raise ConflictError(
                    msg(
                        "The file of raw response {id} is gone: {path}.",
                        id=response.id,
                        path=response.path,
                    ),
                    remedy=msg("Restore the file from a backup."),
                ) from None
        if await asyncio.to_thread(_sha256, copy) != response.sha256:
            raise ConflictError(
                msg("Raw response {id} is not what was received.", id=response.id),
                remedy=msg("Its SHA-256 differs; restore the file from a backup."),
            )
        yield copy
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def expire_responses(
    store: Store, settings: Settings, dataset: str, retention_days: int
) -> int:
    """Delete responses past their retention; the newest applied one to each request stays."""
    values = {"dataset": dataset, "days": retention_days}
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "expired_responses"), values)
        expired = await cursor.fetchall()
    here = machine_of(settings.home)
    removable = [row for row in expired if row[1] is None or row[2] in (None, here)]
    for number, path, machine in removable:
        async with store.connection() as conn:
            await conn.execute("DELETE FROM raw.response WHERE id = %s", [number])
            cursor = await conn.execute(
                "SELECT FROM raw.response WHERE path = %s AND machine IS NOT DISTINCT FROM %s",
                [path, machine],
            )
            # In the transaction, so that a file which cannot be removed keeps its row.
            if path is not None and await cursor.fetchone() is None:
                await _storage(settings, machine).remove(path)
    return len(removable)


async def delete_expired_bodies(
    conn: AsyncConnection[Any], source: str, dataset: str, retention_days: int
) -> None:
    """Delete all responses in the database that are past their retention, applied or not."""
    values = {"source": source, "dataset": dataset, "days": retention_days}
    await conn.execute(load_query(_PACKAGE, "delete_expired_bodies"), values)


async def _copy_file(settings: Settings, response: StoredResponse, copy: Path) -> None:
    if response.machine not in (None, machine_of(settings.home)):
        raise UnavailableError(
            msg(
                "Raw response {id} is a file of the machine {machine}.",
                id=response.id,
                machine=response.machine,
            ),
            remedy=msg("Run the command there, or set archives.provider to S3."),
        )
    assert response.path is not None
    with copy.open("wb") as file:
        async for piece in _storage(settings, response.machine).read(
            response.path, 0, response.size
        ):
            await asyncio.to_thread(file.write, piece)


def _values(request: RawRequest, sha256: bytes, size: int, run: int | None) -> dict[str, Any]:
    headers = {name: storable_text(value) for name, value in request.headers.items()}
    return {
        "source": request.source,
        "dataset": request.dataset,
        "key": request.key,
        "request": storable_text(request.request),
        "status": request.status,
        "headers": Jsonb(headers),
        "sha256": sha256,
        "size": size,
        "content": None,
        "path": None,
        "machine": None,
        "run": run,
        "asynchronous": False,
    }


def _body_values(request: RawRequest, body: bytes, run: int | None) -> dict[str, Any]:
    sha256 = hashlib.sha256(body).digest()
    return _values(request, sha256, len(body), run) | {"content": body}


def _storage(settings: Settings, machine: str | None) -> Storage:
    return storage_of(settings) if machine is None else Folder(settings.home)


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
