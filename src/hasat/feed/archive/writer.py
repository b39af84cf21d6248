"""Write the newest archive of a dataset if it is missing or outdated."""

import os
import platform
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path

from hasat.clock import ISTANBUL
from hasat.errors import ConflictError, HasatError
from hasat.feed.archive.catalog import (
    expire,
    is_current,
    list_archives,
    publish,
    remove_leftovers,
    reserve,
)
from hasat.feed.archive.cumulative import DAYS, FORMATS, write_deltas
from hasat.feed.archive.manifest import ENDINGS, Archive, formats_of, path_of
from hasat.feed.archive.snapshot import write_snapshot
from hasat.feed.archive.storage import Storage, storage_of
from hasat.feed.archive.subprocess import run_in_worker
from hasat.feed.changes import head_of
from hasat.feed.dataset import Dataset
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.locks import BoundedWait, locked, try_lock


class ArchivingError(ConflictError):
    """Another process of this machine archives the dataset."""

    code = "archiving"


async def write_archives(
    store: Store,
    settings: Settings,
    dataset: Dataset,
    *,
    force: bool = False,
    wait: bool = True,
) -> Sequence[Archive]:
    """Write one snapshot of the dataset in all formats, then remove expired archives.

    Returns the new archives: none if the newest is up to date, unless `force` is set. While
    another process of this machine archives the dataset it waits, or raises ArchivingError.
    """
    storage = storage_of(settings)
    seat = _seat(settings)
    batch = None
    async with _alone(settings, dataset, wait=wait):
        await remove_leftovers(store, storage, seat, dataset.name)
        async with store.connection() as conn:
            head = await head_of(conn, dataset.name)
        try:
            if force or not await is_current(store, storage, dataset):
                batch = await _write(store, storage, seat, dataset, head.records)
            await expire(store, dataset.name, settings.archives.retention_days)
        finally:
            # Files that could not be removed stay recorded for the next writer.
            with suppress(HasatError):
                await remove_leftovers(store, storage, seat, dataset.name)
    return [one for one in await list_archives(store, dataset.name) if one.batch == batch]


async def expire_archives(store: Store, settings: Settings, dataset: Dataset) -> None:
    """Remove expired archives, unless another process of this machine is writing."""
    with suppress(ArchivingError):
        async with _alone(settings, dataset, wait=False):
            await expire(store, dataset.name, settings.archives.retention_days)
            await remove_leftovers(store, storage_of(settings), _seat(settings), dataset.name)


def _seat(settings: Settings) -> str:
    return f"{platform.node()}:{settings.home}"


async def _write(store: Store, storage: Storage, seat: str, dataset: Dataset, records: int) -> str:
    batch = secrets.token_hex(4)
    stem = f"{dataset.name}_{dataset.noun}_{_stamp(await store.now())}_{batch}"
    names = {name: f"{stem}.{ENDINGS[name]}" for name in formats_of(dataset)}
    delta_names = {
        (days, name): f"{stem}_{days}d.{ENDINGS[name]}" for days in DAYS for name in FORMATS
    }
    every_name = [*names.values(), *delta_names.values()]
    await reserve(store, seat, dataset.name, batch, every_name)

    def draft(name: str) -> Path:
        return storage.draft(path_of(dataset.name, name))

    drafts = {format_: draft(name) for format_, name in names.items()}
    delta_drafts = {
        days: {name: draft(delta_names[days, name]) for name in FORMATS} for days in DAYS
    }
    written = await run_in_worker(records, write_snapshot, store.url, dataset, drafts)
    deltas = await run_in_worker(records, write_deltas, store.url, dataset, delta_drafts)
    for name in every_name:
        await storage.publish(path_of(dataset.name, name))
    await publish(store, seat, batch, names, written, delta_names, deltas)
    return batch


@asynccontextmanager
async def _alone(settings: Settings, dataset: Dataset, *, wait: bool) -> AsyncIterator[None]:
    """Hold the lock of the dataset in this home; the kernel releases it when the process dies."""
    folder = settings.home / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f".{dataset.name}.lock"
    if wait:
        patience = BoundedWait(
            f"another process that archives {dataset.name}",
            remedy=msg("Check for a Hasat process that hangs."),
        )
        async with locked(file, patience):
            yield
        return
    lock = try_lock(file)
    if lock is None:
        raise ArchivingError(
            msg("Another process of this machine archives {dataset}.", dataset=dataset.name),
            remedy=msg("If none is running, check for a process that hangs."),
        )
    try:
        yield
    finally:
        os.close(lock)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(ISTANBUL).strftime("%Y-%m-%d_%H%M%S")
