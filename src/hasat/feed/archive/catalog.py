"""The catalogue of archives in feed.archive.

A batch is recorded as a leftover before its first byte is written, and again when it expires, in
the transaction that adds or removes its archives. Whenever a process is killed, every file is
therefore either an archive or a leftover that the next writer of the same seat (machine and home)
removes.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

from hasat.errors import ConflictError, NotFoundError, UnavailableError
from hasat.feed.archive.cumulative import CumulativeDelta, WrittenDelta
from hasat.feed.archive.manifest import Archive, Format, WrittenFiles, formats_of, path_of
from hasat.feed.archive.storage import MissingError, Storage
from hasat.feed.changes import head_of, is_filled
from hasat.feed.dataset import Dataset
from hasat.messages import msg, template
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.feed.archive"


class NoArchiveError(NotFoundError):
    """There is no such archive."""

    code = "no-archive"
    title = template("There is no such archive")


class ArchivePendingError(UnavailableError):
    """There is no archive of the dataset yet; a worker writes it."""

    code = "archive-pending"
    title = template("The archive is not written yet")
    retry_after = 10.0

    def __init__(self, dataset: str) -> None:
        super().__init__(
            msg("{dataset} has no archive yet that a consumer can start from.", dataset=dataset),
            remedy=msg(
                "A worker writes it after the next commit; "
                "`hasat archive write {dataset}` does so at once.",
                dataset=dataset,
            ),
        )


async def list_archives(store: Store, dataset: str) -> Sequence[Archive]:
    """Return all archives of a dataset, newest first."""
    return await _archives(store, "list", {"dataset": dataset})


async def find_archive(store: Store, storage: Storage, dataset: str, name: str) -> Archive:
    """Return the archive with that name if its file is in this storage."""
    for archive in await list_archives(store, dataset):
        if archive.name == name:
            if await storage.size(archive.path) != archive.size:
                raise MissingError(archive.path, storage.label)
            return archive
    raise NoArchiveError(
        msg("{dataset} has no archive named {name!r}.", dataset=dataset, name=name),
        remedy=msg("GET /api/v1/{dataset}/archives lists them; old ones expire.", dataset=dataset),
    )


async def latest_archive(store: Store, storage: Storage, dataset: str, format_: Format) -> Archive:
    """Return the newest archive whose file is here and whose cursor the feed still accepts."""
    found = await _archives(store, "usable", {"dataset": dataset, "format": format_})
    for archive in found:
        if await storage.size(archive.path) == archive.size:
            return archive
    if found:
        raise MissingError(found[0].path, storage.label)
    raise ArchivePendingError(dataset)


async def list_deltas(store: Store, dataset: str) -> Sequence[CumulativeDelta]:
    """Return all cumulative deltas of a dataset, newest first."""
    query = load_query(_PACKAGE, "list_deltas")
    return await store.rows(CumulativeDelta, query, {"dataset": dataset})


async def find_delta(store: Store, storage: Storage, dataset: str, name: str) -> CumulativeDelta:
    """Return the cumulative delta with that name if its file is in this storage."""
    for delta in await list_deltas(store, dataset):
        if delta.name == name:
            return await _in_storage(storage, delta)
    raise NoArchiveError(
        msg("{dataset} has no delta named {name!r}.", dataset=dataset, name=name),
        remedy=msg("GET /api/v1/{dataset}/deltas lists them; old ones expire.", dataset=dataset),
    )


async def latest_delta(
    store: Store, storage: Storage, dataset: str, days: int, format_: Format
) -> CumulativeDelta:
    """Return the newest cumulative delta of a number of days whose end the feed still accepts."""
    async with store.connection() as conn:
        head = await head_of(conn, dataset)
    for delta in await list_deltas(store, dataset):
        usable = delta.epoch == head.epoch and delta.seq >= head.floor
        if usable and (delta.days, delta.format) == (days, format_):
            return await _in_storage(storage, delta)
    raise ArchivePendingError(dataset)


async def _in_storage(storage: Storage, delta: CumulativeDelta) -> CumulativeDelta:
    if await storage.size(delta.path) != delta.size:
        raise MissingError(delta.path, storage.label)
    return delta


async def is_obtainable(store: Store, storage: Storage, dataset: Dataset) -> bool:
    """Return whether a consumer can start from an archive here; true for an empty dataset."""
    async with store.connection() as conn:
        if not await is_filled(conn, dataset.name):
            return True
    try:
        for format_ in formats_of(dataset):
            await latest_archive(store, storage, dataset.name, format_)
    except (ArchivePendingError, MissingError):
        return False
    return True


async def is_current(store: Store, storage: Storage, dataset: Dataset) -> bool:
    """Return whether a complete batch of the current state is in this storage."""
    batches: dict[str, set[Format]] = {}
    for archive in await _archives(store, "current", {"dataset": dataset.name}):
        if await storage.size(archive.path) == archive.size:
            batches.setdefault(archive.batch, set()).add(archive.format)
    return any(formats >= set(formats_of(dataset)) for formats in batches.values())


async def reserve(store: Store, seat: str, dataset: str, batch: str, names: Sequence[str]) -> None:
    """Record the files that are about to be written."""
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO feed.archive_leftover (batch, dataset, names, seat)"
            " VALUES (%s, %s, %s, %s)",
            [batch, dataset, list(names), seat],
        )


async def publish(
    store: Store,
    seat: str,
    batch: str,
    names: Mapping[Format, str],
    written: WrittenFiles,
    delta_names: Mapping[tuple[int, Format], str],
    deltas: Sequence[WrittenDelta],
) -> None:
    """Add the files of a batch to the catalogue, all at once."""
    async with store.connection() as conn:
        cursor = await conn.execute("DELETE FROM feed.archive_leftover WHERE batch = %s", [batch])
        if not cursor.rowcount:
            raise ConflictError(
                msg("The files were removed as leftovers before they were complete."),
                remedy=msg("A worker retries soon; `hasat archive write` retries at once."),
            )
        for format_, (size, sha256) in written.files.items():
            await conn.execute(
                load_query(_PACKAGE, "add"),
                {
                    **vars(written.manifest),
                    "batch": batch,
                    "name": names[format_],
                    "format": format_,
                    "size": size,
                    "sha256": sha256,
                    "seat": seat,
                },
            )
        for delta in deltas:
            for format_, (size, sha256) in delta.files.items():
                await conn.execute(
                    load_query(_PACKAGE, "add_delta"),
                    {
                        **delta.as_row(),
                        "batch": batch,
                        "name": delta_names[delta.beginning.days, format_],
                        "format": format_,
                        "size": size,
                        "sha256": sha256,
                        "seat": seat,
                    },
                )


async def expire(store: Store, dataset: str, retention_days: int) -> None:
    """Remove expired archives from the catalogue; their files become leftovers."""
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "expire"), {"dataset": dataset, "retention_days": retention_days}
        )
        await conn.execute(load_query(_PACKAGE, "expire_deltas"), {"dataset": dataset})


async def remove_leftovers(store: Store, storage: Storage, seat: str, dataset: str) -> None:
    """Remove leftovers; the caller must hold the lock of the seat and dataset."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "leftovers"), {"dataset": dataset, "seat": seat}
        )
        found = await cursor.fetchall()
    for batch, names in found:
        for name in names:
            await storage.remove(path_of(dataset, name))
        async with store.connection() as conn:
            await conn.execute("DELETE FROM feed.archive_leftover WHERE batch = %s", [batch])


async def _archives(store: Store, name: str, values: Mapping[str, Any]) -> Sequence[Archive]:
    # Storage may be slow, so no connection is held while it is queried.
    async with store.connection() as conn, conn.cursor(row_factory=class_row(Archive)) as cursor:
        await cursor.execute(load_query(_PACKAGE, name), values)
        return await cursor.fetchall()


_PACKAGE = "hasat.feed.archive"
_MAX_ERROR = 500


async def due_datasets(
    conn: AsyncConnection[Any], datasets: Sequence[str], min_interval: timedelta
) -> list[str]:
    """Return the datasets whose newest archive is missing or behind and may be written now."""
    cursor = await conn.execute(
        load_query(_PACKAGE, "due"), {"datasets": list(datasets), "min_interval": min_interval}
    )
    return [dataset for (dataset,) in await cursor.fetchall()]


async def save_failure(store: Store, dataset: str, error: str) -> None:
    """Record that an archive could not be written; the next attempt waits longer."""
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "save_failure"), {"dataset": dataset, "error": error[:_MAX_ERROR]}
        )


async def delete_failure(store: Store, dataset: str) -> None:
    """Delete the record of an earlier failure."""
    async with store.connection() as conn:
        await conn.execute("DELETE FROM feed.archive_failure WHERE dataset = %s", [dataset])


async def failures(conn: AsyncConnection[Any]) -> dict[str, str]:
    """Return the datasets that cannot be archived, with the reason."""
    cursor = await conn.execute("SELECT dataset, error FROM feed.archive_failure ORDER BY dataset")
    return dict(await cursor.fetchall())
