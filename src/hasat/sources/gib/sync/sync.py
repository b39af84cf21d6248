"""One sync: both lists compared with the mirror in one transaction, under the guard."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.deliver import publish_event
from hasat.feed.dataset import Dataset
from hasat.feed.guard import (
    Limits,
    Measure,
    measure_changes,
    measure_drop,
    measure_growth,
    share,
)
from hasat.feed.holds import Examples, check_guard
from hasat.feed.reconcile import Reconcile
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.lists.errors import ReplacedListError
from hasat.sources.gib.lists.lines import BOXES
from hasat.sources.gib.settings import GibSettings
from hasat.sources.gib.sync.events import sync_completed
from hasat.sources.gib.sync.full_load import load_everything
from hasat.sources.gib.sync.incremental import MAX_NEW_RECORDS, load_changes, read_all_changes
from hasat.sources.gib.sync.processes import map_large_arrays, worker_pool
from hasat.sources.gib.sync.state import (
    ListState,
    file_identity,
    file_sha256,
    load_states,
    quarantine_users,
    save_state,
)
from hasat.sources.gib.sync.task import (
    LoadResult,
    ReportProgress,
    SyncReport,
    SyncTask,
)
from hasat.store import Store

ADVISORY_LOCK = 8370142691
"""The original service's lock; it lets a second sync know early that it is not needed."""

_EXAMPLES_PER_KIND = 5
_LIST_NAMES = {"PK": msg("PK list"), "GB": msg("GB list")}

RecordReport = Callable[[AsyncConnection[Any], SyncReport], Awaitable[None]]


async def synchronise(
    store: Store,
    settings: Settings,
    lists: Mapping[str, Path],
    *,
    run: int,
    approving: int | None = None,
    progress: ReportProgress | None = None,
    record_report: RecordReport | None = None,
    max_new: int = MAX_NEW_RECORDS,
) -> SyncReport:
    """Update both datasets from the lists; raise without a change if the lists look wrong.

    `approving` is the hold that these lists belong to, which the guard lets pass.
    `record_report` stores the report in the transaction that commits the changes.
    """
    began = time.monotonic()
    map_large_arrays()
    async with (
        temporary_folder(settings, run) as folder,
        Reconcile.begin(store, DATASETS, unless_locked=ADVISORY_LOCK) as work,
    ):
        async with worker_pool(sum(lists[box].stat().st_size for box in BOXES)) as pool:
            # Before hashing: hash and records must be those of one and the same file.
            files = {box: file_identity(lists[box]) for box in BOXES}
            task = SyncTask(
                work,
                pool,
                lists,
                {box: await asyncio.to_thread(file_sha256, lists[box]) for box in BOXES},
                await load_states(work.connection),
                run,
                folder,
                settings.section(GibSettings).batch_size,
                progress or ignore_progress,
            )
            loaded = await _load(task, max_new)
        for box in BOXES:
            if file_identity(lists[box]) != files[box]:
                raise ReplacedListError(
                    msg("The {box} list was replaced while it was read.", box=box)
                )
        measures = _measures(settings.section(GibSettings), task.states, loaded)
        await check_guard(
            work,
            DATASETS,
            measures,
            approving=approving,
            examples=partial(_examples, work),
            detail={"lists": {name: asdict(one) for name, one in loaded.reports().items()}},
        )
        for box, state in loaded.states.items():
            if state is not task.states.get(box):
                await save_state(work.connection, state, task.states.get(box))
        await quarantine_users(work.connection, run, loaded.quarantined)
        version = await work.write(
            run=run,
            retention_days=settings.section(GibSettings).change_retention_days,
            approving=approving,
        )
        users = {box: tally.users for box, tally in loaded.tallies.items()}
        seconds = time.monotonic() - began
        await publish_event(work.connection, sync_completed(users, version.counts, seconds))
        report = SyncReport(
            "committed" if version.changed else "unchanged",
            round(seconds, 3),
            loaded.reports(),
            version,
        )
        if record_report is not None:
            await record_report(work.connection, report)
    return report


async def _load(task: SyncTask, max_new: int) -> LoadResult:
    """Load what the lists have changed; everything, if there is no last run or too much is new."""
    if len(task.states) == len(BOXES):
        changed = [box for box in BOXES if task.hashes[box] != task.states[box].sha256]
        note = msg("reading the lists") if changed else msg("the lists are the same")
        await task.progress(0, None, note)
        changes = await read_all_changes(task, changed, max_new)
        if not any(change.too_many for change in changes.values()):
            return await load_changes(task, changes)
    await task.progress(0, None, msg("reading both lists completely"))
    return await load_everything(task)


def _measures(
    gib: GibSettings, states: Mapping[str, ListState], loaded: LoadResult
) -> list[Measure]:
    """Return the guard's measures; a first run has nothing to be compared with.

    After an undo there are records but no last lists.
    """
    if not states and not any(count.records for count in loaded.counts.values()):
        return []
    limits = Limits(
        gib.max_allowed_removal_percent, gib.max_modified_percent, gib.max_added_percent
    )
    measures = [*measure_changes(loaded.counts, limits)]
    for box, tally in loaded.tallies.items():
        before, now = states.get(box), loaded.states[box]
        name = _LIST_NAMES[box]
        if before is not None and before is not now:
            measures += _size_measures(name, before, now, gib)
        rejected = len(loaded.quarantined.get(box, []))
        measures.append(
            Measure(
                name,
                msg("unreadable users"),
                share(rejected, tally.users + rejected),
                gib.max_rejects_percent,
            )
        )
    return measures


def _size_measures(name: str, before: ListState, now: ListState, gib: GibSettings) -> list[Measure]:
    """Measure a list in both directions: half a list is smaller, and one with junk is larger.

    Lost records reduce the size of the file and the usual bytes alike, and the smaller drop counts:
    junk in the last list makes this one look smaller in the file only, and a few records that
    move the median length do so in the usual bytes only.
    """
    records = before.records, now.records
    per_user = before.xml_bytes // before.records, now.xml_bytes // now.records
    more_users = gib.max_list_users_growth_percent
    if more_users is None:
        more_users = gib.max_added_percent
    sizes = [(before.xml_bytes, now.xml_bytes)]
    if before.usual_bytes is not None and now.usual_bytes is not None:
        sizes.append((before.usual_bytes, now.usual_bytes))
    fewer_bytes = (
        measure_drop(name, msg("fewer bytes"), *size, gib.max_list_bytes_drop_percent)
        for size in sizes
    )
    return [
        measure_drop(name, msg("fewer users"), *records, gib.max_list_users_drop_percent),
        measure_growth(name, msg("more users"), *records, more_users),
        min(fewer_bytes, key=lambda measure: measure.value),
        measure_growth(
            name, msg("more bytes per user"), *per_user, gib.max_list_bytes_growth_percent
        ),
    ]


async def _examples(work: Reconcile, dataset: Dataset) -> Examples:
    """Return some changes for the decision; companies only, because persons are private."""
    found = await work.examples(dataset, _EXAMPLES_PER_KIND, sql.SQL("m.key ~ '^[0-9]{10}$'"))
    return {
        kind: [{"identifier": key, "title": body.get("title")} for key, body in some]
        for kind, some in found.items()
    }


def working_folder(settings: Settings, run: int | str) -> Path:
    """Return the folder of a run's temporary files."""
    return settings.home / "gib" / f"work-{run}"


@asynccontextmanager
async def temporary_folder(settings: Settings, run: int) -> AsyncIterator[Path]:
    folder = working_folder(settings, run)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def ignore_progress(_done: float, _total: float | None, _note: str) -> None:
    return
