"""Rebuild both datasets from the lists that were applied last, as the raw store has them."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial

from hasat.errors import ConflictError, NothingToDoError
from hasat.feed.dataset import Dataset
from hasat.feed.raw import StoredResponse, iter_applied, open_stored
from hasat.feed.rebuild import OnResponses, RebuildSummary, StagedRebuild
from hasat.feed.reconcile import Reconcile
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.lists.lines import BOXES
from hasat.sources.gib.search import enqueue_search_index
from hasat.sources.gib.settings import GibSettings
from hasat.sources.gib.sync.downloads import raw_name
from hasat.sources.gib.sync.full_load import load_everything
from hasat.sources.gib.sync.processes import map_large_arrays, release_memory, worker_pool
from hasat.sources.gib.sync.state import ListState, load_states, save_state
from hasat.sources.gib.sync.sync import ignore_progress, temporary_folder
from hasat.sources.gib.sync.task import SyncTask
from hasat.store import Store


async def rebuild(
    store: Store,
    settings: Settings,
    _dataset: Dataset,
    *,
    run: int | None = None,
    approving: int | None = None,
    on_progress: OnResponses | None = None,
) -> RebuildSummary:
    """Recompute both datasets, which are made of the same lists; no sync can run meanwhile.

    A taxpayer whose record cannot be read is as in the last run that could read it.
    """
    map_large_arrays()
    gib = settings.section(GibSettings)
    async with AsyncExitStack() as stack:
        work = await stack.enter_async_context(Reconcile.begin(store, DATASETS))
        states = await load_states(work.connection)
        responses = await _applied_lists(store, states)
        lists = {
            box: await stack.enter_async_context(open_stored(settings, response))
            for box, response in responses.items()
        }
        folder = await stack.enter_async_context(temporary_folder(settings, run or 0))
        staged = StagedRebuild(work, DATASETS)
        await staged.open()
        async with worker_pool(sum(one.size for one in responses.values())) as pool:
            task = SyncTask(
                work,
                pool,
                lists,
                {box: response.sha256 for box, response in responses.items()},
                states,
                run,
                folder,
                gib.batch_size,
                ignore_progress,
            )
            targets = {one.name: partial(staged.add, one.name) for one in DATASETS}
            loaded = await load_everything(task, targets)
        if on_progress is not None:
            await on_progress(len(lists))
        results = await staged.finish(
            run=run, retention_days=gib.change_retention_days, approving=approving
        )
        for box, state in loaded.states.items():
            before = states.get(box)
            applied_by = run if before is None else before.run
            await save_state(work.connection, replace(state, run=applied_by), before)
    release_memory()
    await enqueue_search_index(store)
    unreadable = sum(len(found) for found in loaded.quarantined.values())
    return RebuildSummary(len(lists), unreadable, results)


async def _applied_lists(
    store: Store, states: Mapping[str, ListState]
) -> dict[str, StoredResponse]:
    """Return the lists that the mirror was made of; raise if one of them is not stored."""
    found: dict[str, StoredResponse] = {}
    async with store.connection() as conn:
        for box in BOXES:
            async with aclosing(iter_applied(conn, raw_name(box), "lists")) as newest:
                async for response in newest:
                    found[box] = response
                    break
    if not found:
        raise NothingToDoError(
            msg("No taxpayer list is stored."), remedy=msg("The tables were not changed.")
        )
    for box in BOXES:
        applied = states.get(box)
        is_stored = box in found and (applied is None or applied.sha256 == found[box].sha256)
        if not is_stored:
            raise ConflictError(
                msg("The {box} list that was applied last is not stored.", box=box),
                remedy=msg("Lists that are local files are not stored; run `hasat gib sync`."),
            )
    return found
