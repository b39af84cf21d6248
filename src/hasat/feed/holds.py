"""Holds: runs that the guard stopped, their stored input, and the decision about them.

A held run changes nothing. Approving it runs the same job on the stored input with this hold
lifted; rejecting it discards the input. A dataset has at most one open hold: a newer run with the
same finding joins it, and any other newer finding supersedes it.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import structlog
from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from hasat.errors import ConflictError, HasatError, HeldError, NotFoundError
from hasat.feed.dataset import Dataset
from hasat.feed.guard import Counts, Measure, exceeded
from hasat.feed.held_input import (
    HeldInput,
    describe_input,
    loaded_input,
    remove_input,
    store_input,
)
from hasat.feed.reconcile import Reconcile
from hasat.messages import join, msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.audit import current_action, record_action
from hasat.store.home import machine_of
from hasat.store.queries import load_query

log = structlog.get_logger(__name__)

State = Literal["waiting", "approved", "rejected", "superseded"]
Examples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Some changes by kind, each as the fields to show."""

Inputs = Mapping[str, Path | bytes]
"""The input of a run by name: files, or their content."""

_PACKAGE = "hasat.feed"
_EXAMPLES_PER_KIND = 5
# Two runs with findings about the same dataset must not both open a hold.
_LOCK = 8370142692


@dataclass(frozen=True)
class Hold:
    """A held run; `runs` are all runs with this finding, and `id` is the first of them."""

    id: int
    job: str
    source: str | None
    datasets: Sequence[str]
    params: Mapping[str, Any]
    state: State
    at: datetime
    runs: Sequence[int]
    preview: Mapping[str, Any]
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None
    machine: str | None
    """The only machine that has the stored input; None where every machine can load it."""


@dataclass(frozen=True)
class Finding:
    """The finding of the guard: its measures, and the changes that the run would make.

    `detail` has more for the decision, such as the size of each input.
    """

    measures: Sequence[Measure]
    counts: Mapping[str, Counts]
    scopes: Mapping[str, Any] = field(default_factory=dict)
    examples: Mapping[str, Examples] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    def preview(self) -> dict[str, Any]:
        """Return the finding as it is stored and shown."""
        return {
            "measures": [{**asdict(one), "exceeded": one.exceeded} for one in self.measures],
            **self.detail,
            "datasets": {name: counts_json(count) for name, count in self.counts.items()},
            "examples": dict(self.examples),
        }


class GuardError(HeldError):
    """The guard holds the run; `inputs` is what an approval applies, by name."""

    def __init__(self, finding: Finding, inputs: Inputs | None = None) -> None:
        super().__init__(
            msg(
                "The guard holds this run: {measures}. None of these changes was applied.",
                measures=join(map(str, exceeded(finding.measures)), "; "),
            ),
            remedy=msg("Inspect it with `hasat holds show RUN`, then approve or reject it."),
        )
        self.finding = finding
        self.inputs = inputs or {}


def counts_json(count: Counts) -> dict[str, int]:
    """Return the changes of a dataset and its number of records after them."""
    return {
        "added": count.added,
        "modified": count.modified,
        "removed": count.removed,
        "total": count.records + count.added - count.removed,
    }


async def check_guard(
    work: Reconcile,
    datasets: Sequence[Dataset],
    measures: Sequence[Measure],
    *,
    approving: int | None,
    examples: Callable[[Dataset], Awaitable[Examples]] | None = None,
    detail: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
) -> None:
    """Raise GuardError if a measure exceeds its limit, unless the run applies an approved hold.

    `inputs` is stored with the hold, and an approval runs the job on it. A hold without stored
    input is lifted only if the run would make the same number of changes.
    """
    if not exceeded(measures):
        return
    if approving is not None and not await _is_another_finding(work, approving):
        return
    if examples is None:
        examples = partial(key_examples, work)
    raise GuardError(
        Finding(
            measures,
            work.counts,
            {dataset.name: work.scope_of(dataset) for dataset in datasets},
            {dataset.name: await examples(dataset) for dataset in datasets},
            detail or {},
        ),
        inputs,
    )


async def _is_another_finding(work: Reconcile, approving: int) -> bool:
    """Return whether a run that had to read its input again found something else than the hold."""
    found = {name: counts_json(count) for name, count in work.counts.items()}
    cursor = await work.connection.execute(
        load_query(_PACKAGE, "other_finding"), {"id": approving, "datasets": Jsonb(found)}
    )
    return await cursor.fetchone() is not None


async def key_examples(work: Reconcile, dataset: Dataset) -> Examples:
    """Return the keys of some changes: a body may have more than a decision needs."""
    found = await work.examples(dataset, _EXAMPLES_PER_KIND)
    return {kind: [{"identifier": key} for key, _ in some] for kind, some in found.items()}


async def store_inputs(
    store: Store,
    settings: Settings,
    source: str,
    run: int,
    described: Mapping[str, HeldInput],
    files: Mapping[str, Path],
) -> None:
    """Store the input of a run that is about to be held."""
    for name, held in described.items():
        async with store.connection() as conn:
            values = {"run": run, "name": name, **asdict(held)}
            await conn.execute(load_query(_PACKAGE, "save_held_input"), values)
        await store_input(settings, held, files[name])


async def describe_inputs(
    settings: Settings, source: str, run: int, files: Mapping[str, Path]
) -> dict[str, HeldInput]:
    """Return where each file of a run would be stored."""
    return {
        name: await describe_input(settings, source, run, name, file)
        for name, file in files.items()
    }


async def record_hold(
    conn: AsyncConnection[Any],
    *,
    run: int,
    job: str,
    source: str | None,
    params: Mapping[str, Any],
    finding: Finding,
    inputs: Mapping[str, HeldInput],
    seconds: float,
    only_repeat: bool = False,
) -> int | None:
    """Record that a run is held, and return the id of its hold.

    The open hold with the same finding and the same input gets the run; any other open hold of the
    datasets is superseded. With `only_repeat`, return None instead of opening a hold.
    """
    await conn.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    datasets = sorted(finding.counts)
    values = {
        "run": run,
        "job": job,
        "source": source,
        "datasets": datasets,
        "scopes": Jsonb(dict(finding.scopes)),
        "params": Jsonb({name: one for name, one in params.items() if name != "approve"}),
        "preview": Jsonb(finding.preview()),
        "seconds": seconds,
        "inputs": Jsonb({n: one.sha256.hex() + (one.machine or "") for n, one in inputs.items()}),
    }
    cursor = await conn.execute(load_query(_PACKAGE, "repeat_hold"), values)
    if (row := await cursor.fetchone()) is not None:
        return int(row[0])
    if only_repeat:
        return None
    await conn.execute(load_query(_PACKAGE, "supersede_holds"), values)
    await conn.execute(load_query(_PACKAGE, "add_hold"), values)
    return run


async def list_holds(
    store: Store,
    *,
    state: State | None = None,
    source: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> Sequence[Hold]:
    """Return holds, newest first: of one state, of one source, older than one."""
    async with store.connection() as conn:
        return await _select(conn, state=state, source=source, before=before, limit=limit)


async def find_hold(store: Store, run: int) -> Hold | None:
    """Return the hold of a run, if it was held."""
    async with store.connection() as conn:
        found = await _select(conn, id=run)
    return found[0] if found else None


async def get_hold(store: Store, hold: int) -> Hold:
    """Return a hold by the number of any of its runs; raise NotFoundError if there is none."""
    if (found := await find_hold(store, hold)) is None:
        raise _unknown(hold)
    return found


async def waiting_hold(conn: AsyncConnection[Any], hold: int) -> Hold:
    """Return a hold that waits for a decision; raise for any other."""
    found = await _select(conn, id=hold)
    if not found:
        raise _unknown(hold)
    if found[0].state != "waiting":
        raise ConflictError(
            msg(
                "Run {run} does not wait for a decision: it is {state}.",
                run=hold,
                state=found[0].state,
            )
        )
    return found[0]


async def close_approved(store: Store, hold: int) -> None:
    """Close an approved hold whose run has found nothing left to change."""
    async with store.connection() as conn:
        await conn.execute(load_query(_PACKAGE, "close_approved"), {"id": hold})


async def record_approver(conn: AsyncConnection[Any], hold: Hold) -> None:
    """Record who approves a hold and why; it is approved when its run commits."""
    await _decide(conn, hold, None)


async def reject_hold(store: Store, settings: Settings, hold: int) -> Hold:
    """Reject a hold that waits for a decision; raise for any other."""
    async with store.connection() as conn:
        found = await waiting_hold(conn, hold)
        await _decide(conn, found, "rejected")
        await record_action(conn, found.id)
    await remove_decided_inputs(store, settings)
    return await get_hold(store, found.id)


@asynccontextmanager
async def held_inputs(
    store: Store, settings: Settings, hold: int, *, run: int
) -> AsyncIterator[dict[str, Path]]:
    """Provide the input of a hold to the run that applies it; raise on other machines."""
    async with store.connection() as conn:
        await waiting_hold(conn, hold)
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(
                "SELECT name, path, sha256, size, machine FROM feed.held_input WHERE run = %s",
                [hold],
            )
            inputs = {row.pop("name"): HeldInput(**row) for row in await cursor.fetchall()}
    for held in inputs.values():
        if not held.is_at(settings):
            raise ConflictError(
                msg(
                    "The input of run {run} is on the machine {machine}.",
                    run=hold,
                    machine=held.machine,
                ),
                remedy=msg(
                    "`hasat holds approve {run}` queues the approval for a worker there.", run=hold
                ),
            )
    async with loaded_input(settings, inputs, run) as files:
        yield files


async def remove_decided_inputs(store: Store, settings: Settings, run: int | None = None) -> None:
    """Remove stored input of decided runs, on this machine and in the object store.

    `run` is the run that ends now: it needs its input no more.
    """
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        values = {"machine": machine_of(settings.home), "run": run}
        await cursor.execute(load_query(_PACKAGE, "decided_inputs"), values)
        found = await cursor.fetchall()
    for row in found:
        held_run, name = row.pop("run"), row.pop("name")
        held = HeldInput(**row)
        if held.machine is None and settings.archives.provider != "S3":
            continue
        try:
            await remove_input(settings, held)
        except HasatError as error:
            # The record remains, and the next run tries again.
            log.warning("held_input.not_removed", run=held_run, name=name, error=error.message)
            continue
        async with store.connection() as conn:
            await conn.execute(
                "DELETE FROM feed.held_input WHERE run = %s AND name = %s", [held_run, name]
            )


async def remove_stale_copies(store: Store, settings: Settings, run: int) -> None:
    """Remove copies of input on this machine that belong to no active run."""
    folders = await asyncio.to_thread(lambda: list((settings.home / "held").glob("run-*")))
    if not folders:
        return
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT id FROM jobs.run WHERE state <> 'finished'")
        active = {str(one) for (one,) in await cursor.fetchall()} | {str(run)}
    for folder in folders:
        if folder.name.rpartition("-")[2] not in active:
            await asyncio.to_thread(shutil.rmtree, folder, True)


async def _decide(conn: AsyncConnection[Any], hold: Hold, state: State | None) -> None:
    action = current_action()
    cursor = await conn.execute(
        load_query(_PACKAGE, "decide_hold"),
        {
            "id": hold.id,
            "state": state,
            "by": action.actor.name if action else None,
            "reason": action.reason if action else None,
        },
    )
    if await cursor.fetchone() is None:
        # Somebody else has decided since it was read.
        await waiting_hold(conn, hold.id)


async def _select(conn: AsyncConnection[Any], **values: Any) -> list[Hold]:
    wanted = {"id": None, "state": None, "source": None, "before": None, "limit": 1, **values}
    async with conn.cursor(row_factory=class_row(Hold)) as cursor:
        await cursor.execute(load_query(_PACKAGE, "list_holds"), wanted)
        return await cursor.fetchall()


def _unknown(hold: int) -> NotFoundError:
    return NotFoundError(
        msg("There is no held run {run}.", run=hold),
        remedy=msg("`hasat holds list` lists the held runs."),
    )
