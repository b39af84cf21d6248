"""Writing the newest archive of a dataset, if it is missing or behind."""

import platform
import secrets
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime

from hasat.clock import ISTANBUL
from hasat.errors import HasatError
from hasat.feed.archive.apart import aside
from hasat.feed.archive.facts import ENDINGS, Archive, formats_of, path_of
from hasat.feed.archive.places import Place, place_of
from hasat.feed.archive.shelf import (
    admit,
    announce,
    expire,
    is_current,
    list_archives,
    sweep,
)
from hasat.feed.archive.snapshot import write_snapshot
from hasat.feed.dataset import Dataset
from hasat.feed.read import head_of
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.locks import Patience, locked


async def write_archives(
    store: Store, settings: Settings, dataset: Dataset, *, anew: bool = False
) -> Sequence[Archive]:
    """Write what the dataset is now, in all its forms, from one snapshot; then expire old ones.

    Returns what was written: nothing if that is archived already, unless asked for `anew`. Waits
    while another process of this machine does the same.
    """
    place = place_of(settings)
    seat = f"{platform.node()}:{settings.home}"
    batch = None
    async with _alone(settings, dataset):
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


async def _write(store: Store, place: Place, seat: str, dataset: Dataset, records: int) -> str:
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


def _alone(settings: Settings, dataset: Dataset) -> AbstractAsyncContextManager[None]:
    """One writer a dataset in this home; the kernel frees the lock whoever dies how."""
    folder = settings.home / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    patience = Patience(
        f"another process that archives {dataset.name}",
        remedy="Look for a process of Hasat that hangs.",
    )
    return locked(folder / f".{dataset.name}.lock", patience)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(ISTANBUL).strftime("%Y-%m-%d_%H%M%S")
