"""Write the newest archive of a dataset if it is missing or outdated."""

import os
import platform
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from hasat.clock import ISTANBUL
from hasat.errors import ConflictError, HasatError
from hasat.feed.archive.catalog import (
    admit,
    announce,
    expire,
    is_current,
    list_archives,
    sweep,
)
from hasat.feed.archive.manifest import ENDINGS, Archive, formats_of, path_of
from hasat.feed.archive.snapshot import write_snapshot
from hasat.feed.archive.storage import Storage, storage_of
from hasat.feed.archive.subprocess import aside
from hasat.feed.changes import head_of
from hasat.feed.dataset import Dataset
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.locks import Patience, locked, try_lock


class ArchivingError(ConflictError):
    """Another process of this machine archives the dataset."""

    code = "archiving"


async def write_archives(
    store: Store,
    settings: Settings,
    dataset: Dataset,
    *,
    anew: bool = False,
    wait: bool = True,
) -> Sequence[Archive]:
    """Write what the dataset is now, in all its forms, from one snapshot; then expire old ones.

    Returns what was written: nothing if that is archived already, unless asked for `anew`. While
    another process of this machine does the same it waits, or raises an ArchivingError.
    """
    place = storage_of(settings)
    seat = _seat(settings)
    batch = None
    async with _alone(settings, dataset, wait=wait):
        await sweep(store, place, seat, dataset.name)
        async with store.connection() as conn:
            head = await head_of(conn, dataset.name)
        try:
            if anew or not await is_current(store, place, dataset):
                batch = await _write(store, place, seat, dataset, head.records)
            await expire(store, dataset.name, settings.archives.retention_days)
        finally:
            # What could not be removed now is still noted, and goes with the next writing.
            with suppress(HasatError):
                await sweep(store, place, seat, dataset.name)
    return [one for one in await list_archives(store, dataset.name) if one.batch == batch]


async def expire_archives(store: Store, settings: Settings, dataset: Dataset) -> None:
    """Remove archives past their time; not while another process of this machine writes some."""
    with suppress(ArchivingError):
        async with _alone(settings, dataset, wait=False):
            await expire(store, dataset.name, settings.archives.retention_days)
            await sweep(store, storage_of(settings), _seat(settings), dataset.name)


def _seat(settings: Settings) -> str:
    return f"{platform.node()}:{settings.home}"


async def _write(store: Store, place: Storage, seat: str, dataset: Dataset, records: int) -> str:
    batch = secrets.token_hex(4)
    stem = f"{dataset.name}_{dataset.noun}_{_stamp(await store.now())}_{batch}"
    names = {name: f"{stem}.{ENDINGS[name]}" for name in formats_of(dataset)}
    paths = {format_: path_of(dataset.name, name) for format_, name in names.items()}
    await announce(store, seat, dataset.name, batch, list(names.values()))
    drafts = {format_: place.draft(path) for format_, path in paths.items()}
    written = await aside(records, write_snapshot, store.url, dataset, drafts)
    for path in paths.values():
        await place.publish(path)
    await admit(store, seat, batch, names, written)
    return batch


@asynccontextmanager
async def _alone(settings: Settings, dataset: Dataset, *, wait: bool) -> AsyncIterator[None]:
    """One writer a dataset in this home; the kernel frees the lock whoever dies how."""
    folder = settings.home / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f".{dataset.name}.lock"
    if wait:
        patience = Patience(
            f"another process that archives {dataset.name}",
            remedy="Look for a process of Hasat that hangs.",
        )
        async with locked(file, patience):
            yield
        return
    lock = try_lock(file)
    if lock is None:
        raise ArchivingError(
            msg("Another process of this machine archives {dataset}.", dataset=dataset.name),
            remedy=msg("If none is at work, look for one that hangs."),
        )
    try:
        yield
    finally:
        os.close(lock)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(ISTANBUL).strftime("%Y-%m-%d_%H%M%S")
