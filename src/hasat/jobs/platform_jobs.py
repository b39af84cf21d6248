"""The platform's own jobs: archives and rebuilds of datasets, deletion of expired records."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from hasat.errors import HasatError
from hasat.feed.archive import storage_of
from hasat.feed.archive.catalog import (
    delete_failure,
    due_datasets,
    failures,
    is_obtainable,
    save_failure,
)
from hasat.feed.archive.writer import expire_archives, write_archives
from hasat.feed.changes import expire_history
from hasat.feed.dataset import Dataset
from hasat.feed.holds import counts_json
from hasat.feed.rebuild import Rebuild, RebuildSummary
from hasat.feed.undo import undo_run
from hasat.jobs.catalogue import TASK, Job, Outcome
from hasat.jobs.connection import DATABASE_ERRORS, Connection
from hasat.jobs.context import RunContext
from hasat.messages import join, msg, template
from hasat.store.queries import load_query
from hasat.text import MAX_EXACT_INTEGER

ARCHIVES_JOB = "archive_datasets"
REBUILD_JOB = "rebuild_dataset"
UNDO_JOB = "undo_run"


def archive_job(datasets: Sequence[Dataset], min_interval: timedelta) -> Job:
    """Return the job that archives these datasets as soon as one of them needs it.

    Its hourly run also replaces archives whose files are missing and removes expired ones.
    """
    names = [dataset.name for dataset in datasets]

    async def is_wanted(connection: Connection) -> bool:
        return bool(await due_datasets(connection, names, min_interval))

    async def run(context: RunContext) -> Outcome:
        async with context.store.connection() as connection:
            due = await due_datasets(connection, names, min_interval)
            waiting = (await failures(connection)).keys() - set(due)
        written: dict[str, list[str]] = {}
        errors: dict[str, str] = {}
        for number, dataset in enumerate(datasets):
            if dataset.name in waiting:
                continue
            await context.progress(
                number, len(datasets), msg("archiving {dataset}", dataset=dataset.name)
            )
            try:
                files = await _archive(context, dataset, is_due=dataset.name in due)
            except DATABASE_ERRORS:
                raise
            except (HasatError, OSError) as error:
                context.log.warning("archive.failed", dataset=dataset.name, error=str(error))
                await save_failure(context.store, dataset.name, str(error))
                errors[dataset.name] = str(error)
            else:
                await delete_failure(context.store, dataset.name)
                if files:
                    written[dataset.name] = files
        if errors:
            reasons = (
                msg("{dataset}: {error}", dataset=name, error=error)
                for name, error in errors.items()
            )
            raise HasatError(msg("Archives could not be written. {reasons}", reasons=join(reasons)))
        return Outcome("done" if written else "nothing", detail={"written": written})

    return Job(
        ARCHIVES_JOB,
        run,
        msg("Archives changed datasets and deletes expired archives."),
        cron="17 * * * *",
        missed="skip",
        wanted=is_wanted,
        options={},
    )


async def _archive(context: RunContext, dataset: Dataset, *, is_due: bool) -> list[str]:
    """Write the dataset's archive where it is due or lost; return the names of its files."""
    store, settings = context.store, context.settings
    if is_due or not await is_obtainable(store, storage_of(settings), dataset):
        archives = await write_archives(store, settings, dataset, wait=False)
        return [archive.name for archive in archives]
    await expire_archives(store, settings, dataset)
    return []


def rebuild_job(rebuilds: Mapping[str, tuple[Dataset, Rebuild]]) -> Job:
    """Return the job that recomputes one of these datasets from its stored responses."""

    async def run(context: RunContext) -> Outcome:
        dataset, rebuild = rebuilds[context.params["dataset"]]
        began = time.monotonic()

        async def report(responses: int) -> None:
            await context.progress(responses, None, msg("responses"))

        done = await rebuild(
            context.store,
            context.settings,
            dataset,
            run=context.run_id,
            approving=context.approving,
            on_progress=report,
        )
        return Outcome(detail=_rebuild_detail(done, time.monotonic() - began))

    return Job(
        REBUILD_JOB,
        run,
        msg("Recomputes a dataset from its stored responses, without a request."),
        options={"dataset": Literal[*sorted(rebuilds)]},
        overlap="queue",
    )


def undo_job(datasets: Sequence[Dataset]) -> Job:
    """Return the job that undoes the changes of a run; the guard holds it until an approval."""

    async def run(context: RunContext) -> Outcome:
        version = await undo_run(
            context.store,
            datasets,
            context.params["run"],
            run=context.run_id,
            approving=context.approving,
        )
        if version is None:
            return Outcome("nothing", message=msg("All its records have changed again since."))
        counts = {name: counts_json(count) for name, count in version.counts.items()}
        rows = sum(count.total for count in version.counts.values())
        return Outcome(rows_changed=rows, detail={"datasets": counts})

    return Job(
        UNDO_JOB,
        run,
        msg("Undoes the changes of a run, after an approval."),
        options={"run": Annotated[int, Field(ge=1, le=MAX_EXACT_INTEGER)]},
        overlap="queue",
    )


def _rebuild_detail(done: RebuildSummary, seconds: float) -> dict[str, Any]:
    return {
        "answers": done.responses,
        "unreadable": done.unreadable,
        "notesPutBack": done.restored,
        "requests": 0,
        "seconds": round(seconds, 3),
        "datasets": [
            {
                "dataset": one.dataset,
                "how": one.how,
                "records": one.records,
                "digest": one.digest.hex(),
                "repaired": one.repaired,
                "added": one.changes.added,
                "modified": one.changes.modified,
                "removed": one.changes.removed,
            }
            for one in done.datasets
        ],
    }


_UNCLAIMED = template("No worker started it for {days} days.")


async def _housekeeping(context: RunContext) -> Outcome:
    from hasat.receipts.ledger import expire_receipts

    days = context.settings.jobs.keep_runs_days
    detail = {}
    for what in ("forget_runs", "forget_set_aside", "drop_unwanted", "sweep_queue"):
        async with context.store.connection() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", f"housekeeping_{what}"),
                {"days": days, "task": TASK, "unclaimed": _UNCLAIMED},
            )
            detail[what] = cursor.rowcount
    async with context.store.connection() as connection:
        cursor = await connection.execute(
            "SELECT jobs.forget_audit(%s)", [context.settings.jobs.keep_audit_days]
        )
        detail["forget_audit"] = cursor.rowcount
    async with context.store.connection() as connection:
        detail["expire_history"] = await expire_history(
            connection, context.settings.history.retention
        )
        detail["expire_receipts"] = await expire_receipts(
            connection, context.settings.receipts.retention
        )
    rows = sum(detail.values())
    return Outcome("done" if rows else "nothing", rows_changed=rows, detail=detail)


def platform_jobs(
    datasets: Sequence[Dataset] = (),
    min_interval: timedelta = timedelta(hours=1),
    rebuilds: Mapping[str, tuple[Dataset, Rebuild]] | None = None,
) -> tuple[Job, ...]:
    """Return the jobs of every installation; archives and rebuilds only of its datasets."""
    return (
        *([archive_job(datasets, min_interval)] if datasets else ()),
        *([rebuild_job(rebuilds)] if rebuilds else ()),
        *([undo_job(datasets)] if datasets else ()),
        Job(
            name="housekeeping",
            run=_housekeeping,
            summary=msg(
                "Deletes expired runs, quarantined records, past states and receipts; cleans up "
                "the queue."
            ),
            cron="15 4 * * *",
            options={},
        ),
    )
