"""`hasat jobs`: the schedule, the runs, and running a job now; `hasat rebuild`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from json import dumps, loads
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hasat.clock import zone
from hasat.console import context, output
from hasat.console.holds import decision_json, decision_text
from hasat.console.runtime import (
    archive_without_workers,
    build_catalogue,
    open_existing_store,
    open_migrated_store,
    run_with_store,
    with_audit,
)
from hasat.console.tables import Column, local_time, outcome
from hasat.errors import UsageError
from hasat.feed.holds import Hold, find_hold
from hasat.jobs import Job, Run
from hasat.jobs.catalogue import unknown_params
from hasat.jobs.runs import (
    count_live_workers,
    get_run,
    list_runs,
    schedule_overview,
)
from hasat.messages import join, msg
from hasat.settings import Settings
from hasat.source.installed import all_sources
from hasat.store import Store

_TRIGGERS = {"schedule": msg("scheduled"), "hand": msg("manual"), "retry": msg("retry")}

app = typer.Typer(help="The schedule, the runs, and running a job now.", no_args_is_help=True)

_EXIT = {"done": 0, "nothing": 3, "skipped": 3, "held": 4, "out_of_quota": 5, "interrupted": 130}


@app.command("list")
def list_jobs(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """List the jobs with their next due time and the outcome of their last run.

    Examples: `hasat jobs list` · `hasat jobs list --json`
    """
    settings = context.get_settings(ctx)

    entries = run_with_store(
        settings, lambda store: schedule_overview(store, build_catalogue(settings))
    )
    value = [
        {
            "name": entry.job.name,
            "summary": entry.job.summary,
            "source": entry.job.source,
            "lane": entry.job.lane,
            "enabled": entry.job.enabled,
            "cron": entry.job.cron,
            "zone": entry.job.zone or settings.jobs.timezone,
            "next_due": _local(entry.next_due, settings),
            "last_run": _public(entry.last_run, settings) if entry.last_run else None,
        }
        for entry in entries
    ]

    def human() -> RenderableType:
        table = output.table(
            "job",
            Column("source", 2),
            Column("lane", 4),
            Column("cron", 3),
            "next due",
            Column("last run", 1),
            "outcome",
        )
        for entry in entries:
            job, last = entry.job, entry.last_run
            due = local_time(entry.next_due, settings) if job.enabled else msg("off")
            cron = f"{job.cron} {job.zone}" if job.cron else msg("manual")
            began = (
                local_time(last.started_at or last.queued_at, settings) if last else msg("never")
            )
            table.add_row(
                job.name,
                job.source or "",
                job.lane,
                cron,
                due,
                began,
                outcome(last.outcome or last.state) if last else "",
            )
        return table

    output.emit(value, json=json, human=human)


@app.command("run")
def run_now(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="The job; the one in JOB_ID if not given.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A parameter, as JSON or text."),
    ] = None,
    queue: Annotated[
        bool, typer.Option("--queue", help="Queue it for a worker and print the run's number.")
    ] = False,
    reason: output.ReasonOption = None,
    json: output.JsonFlag = False,
) -> None:
    """Run a job now in this process, without a worker; disabled jobs too.

    Exits 0 when done, 3 when there is nothing to do or the job is already running, 4 when held,
    5 when out of quota and 1 when failed. With --queue a worker runs it; exits 3 if a run of the
    job is already queued or running, unless its runs wait for each other.

    Examples: `hasat jobs run housekeeping` · `hasat jobs run archives --queue` ·
    `ONLY_LEAGUE_ID=39 JOB_ID=top_scorers_daily hasat jobs run --json`
    """
    from hasat.jobs import run_in_foreground
    from hasat.jobs.queue import queue_run

    settings = context.get_settings(ctx)
    name = name or settings.jobs.job_id
    if name is None:
        raise UsageError(
            msg("No job is named."),
            remedy=msg("Give its name, or set JOB_ID; `hasat jobs list` shows all jobs."),
        )
    chosen = {key: _parse_value(text) for key, text in context.parse_pairs(param or []).items()}

    catalogue = build_catalogue(settings)
    params = with_defaults(settings, catalogue.get(name), chosen)
    if queue:
        _emit_queued(
            settings,
            with_audit(
                "run.queue",
                name,
                lambda store: queue_run(store, catalogue, name, params, behind_others=False),
                reason=reason,
            ),
            json=json,
        )
        return

    async def run_here(store: Store) -> Run:
        with output.progress_bar(name) as on_progress:
            return await run_in_foreground(
                catalogue, store, settings, name, params, on_progress, output.note
            )

    async def perform() -> Run:
        async with open_migrated_store(settings) as store:
            run = await with_audit("run.start", name, run_here, reason=reason)(store)
            await archive_without_workers(store, settings)
            return run

    try:
        done = context.run_async(perform())
    except typer.Exit:
        output.note(msg("Interrupted; `hasat jobs history {name}` shows the run.", name=name))
        raise
    output.emit(_public(done, settings), json=json, human=lambda: _details(done, settings))
    raise typer.Exit(_EXIT.get(done.outcome or "", 1))


@app.command()
def history(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Only runs of this job.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of runs.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed runs.")] = False,
    json: output.JsonFlag = False,
) -> None:
    """List the stored runs, newest first.

    Examples: `hasat jobs history` · `hasat jobs history housekeeping --failed --json`
    """
    settings = context.get_settings(ctx)

    async def read() -> list[Run]:
        async with open_existing_store(settings) as store:
            runs = await list_runs(store, job=name, bad=failed, limit=limit)
            if name is not None and not runs:
                # Runs of a job that no longer exists are listed; an unknown name is an error.
                build_catalogue(settings).get(name)
            return runs

    runs = context.run_async(read())

    def human() -> RenderableType:
        if not runs:
            return output.text([msg("No results.")])
        table = output.table(
            Column("run", numeric=True),
            "job",
            Column("trigger", 3),
            "started",
            Column("finished", 4),
            "outcome",
            Column("rows", 2, numeric=True),
            Column("message", 1, wraps=True),
        )
        for run in runs:
            table.add_row(
                str(run.id),
                run.job,
                _TRIGGERS[run.trigger],
                local_time(run.started_at, settings),
                local_time(run.finished_at, settings),
                outcome(run.outcome or run.state),
                output.number(run.rows_changed),
                run.message or run.error or "",
            )
        return table

    output.emit([_public(run, settings) for run in runs], json=json, human=human)


@app.command()
def show(
    ctx: typer.Context,
    run: Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The run's number.")],
    json: output.JsonFlag = False,
) -> None:
    """Show all details of a run.

    Example: `hasat jobs show 42 --json`
    """
    settings = context.get_settings(ctx)

    async def read(store: Store) -> tuple[Run, Hold | None]:
        return await get_run(store, run), await find_hold(store, run)

    found, hold = run_with_store(settings, read)
    value = _public(found, settings)
    if hold is not None:
        value |= _public_times(decision_json(hold), settings)
    output.emit(value, json=json, human=lambda: _details(found, settings, hold))


@app.command()
def retry(
    ctx: typer.Context,
    run: Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The finished run to repeat.")],
    reason: output.ReasonOption = None,
    json: output.JsonFlag = False,
) -> None:
    """Queue a new run with the parameters of a finished one, for a worker.

    Example: `hasat jobs retry 42`
    """
    from hasat.jobs.queue import retry_run

    settings = context.get_settings(ctx)
    retry = with_audit(
        "run.retry",
        run,
        lambda store: retry_run(store, build_catalogue(settings), run),
        reason=reason,
    )
    _emit_queued(settings, retry, json=json)


@app.command()
def stop(
    ctx: typer.Context,
    run: Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The run to stop.")],
    reason: output.ReasonOption = None,
    json: output.JsonFlag = False,
) -> None:
    """Stop a run: a queued one at once, a running one within seconds. Its commits remain.

    Example: `hasat jobs stop 42`
    """
    from hasat.jobs.queue import stop_run

    settings = context.get_settings(ctx)
    stop = with_audit("run.stop", run, lambda store: stop_run(store, run), reason=reason)
    stopped = run_with_store(settings, stop)
    output.emit(
        _public(stopped, settings),
        json=json,
        human=lambda: msg(
            "Run {run} of {job}: {message}",
            run=stopped.id,
            job=stopped.job,
            message=stopped.message,
        ),
    )


def rebuild(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="Such as fixtures.")],
    json: output.JsonFlag = False,
) -> None:
    """Rebuild a dataset from stored responses, without requests to its upstream.

    Datasets made of the same responses are rebuilt together. If the result equals what was
    published, damaged tables are repaired and consumers do not notice. Exits with 3 if there are no
    responses, with 4 if they contain far fewer records than published: the guard holds the run, and
    `hasat holds approve` applies it.

    Example: `hasat rebuild fixtures --json`
    """
    from hasat.console.rebuild import rebuild_dataset

    rebuild_dataset(context.get_settings(ctx), dataset, json=json)


def _emit_queued(
    settings: Settings, queue: Callable[[Store], Awaitable[Run]], *, json: bool
) -> None:
    """Queue a run and print it, with a note if no worker is running."""

    async def queue_it() -> tuple[Run, int]:
        async with open_existing_store(settings) as store:
            return await queue(store), await count_live_workers(store, settings)

    queued, workers = context.run_async(queue_it())
    if not workers:
        output.note(msg("No worker is running; start one with `hasat worker` or `hasat up`."))
    output.emit(
        _public(queued, settings),
        json=json,
        human=lambda: msg("Run {run} of {job} is queued.", run=queued.id, job=queued.job),
    )


def _parse_value(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        # A number with thousands of digits comes here too; validation rejects it.
        return text


def with_defaults(settings: Settings, job: Job, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Add the parameters that the settings of the job's source give to a manual run."""
    source = next((one for one in all_sources() if one.name == job.source), None)
    given = source.manual_params(settings) if source else {}
    known = {name: value for name, value in given.items() if not unknown_params(job, [name])}
    return {**known, **chosen}


def _details(run: Run, settings: Settings, hold: Hold | None = None) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    rows = {
        msg("run"): run.id,
        msg("job"): run.job,
        msg("outcome"): outcome(run.outcome or run.state),
        msg("decision"): decision_text(hold, settings) if hold is not None else None,
        msg("message"): run.message,
        msg("error"): run.error,
        msg("trigger"): _TRIGGERS[run.trigger],
        msg("worker"): run.worker,
        msg("attempt"): run.attempt,
        msg("started"): local_time(run.started_at, settings, seconds=True),
        msg("finished"): local_time(run.finished_at, settings, seconds=True),
        msg("rows changed"): run.rows_changed,
        msg("requests"): run.requests,
        msg("progress"): _progress(run) if run.state != "finished" else None,
        msg("detail"): dumps(run.detail, ensure_ascii=False) if run.detail else None,
    }
    for label, value in rows.items():
        if value is not None:
            text = value if isinstance(value, str | Text) else str(value)
            table.add_row(
                output.shown(label), output.shown(text) if isinstance(text, str) else text
            )
    return table


def _progress(run: Run) -> str | None:
    if not run.progress:
        return None
    done, total = run.progress.get("done") or 0, run.progress.get("total")
    count = (
        msg("{done:,.0f} of {total:,.0f}", done=done, total=total)
        if total
        else output.number(done, ",.0f")
    )
    note = run.progress.get("note")
    return join([count, note]) if note else count


def _public(run: Run, settings: Settings) -> dict[str, Any]:
    """Return a run as a JSON document, with its times in the scheduler's zone."""
    return _public_times(asdict(run), settings)


def _public_times(document: dict[str, Any], settings: Settings) -> dict[str, Any]:
    return {
        key: _local(value, settings) if isinstance(value, datetime) else value
        for key, value in document.items()
    }


def _local(value: datetime | None, settings: Settings) -> datetime | None:
    return value.astimezone(zone(settings.jobs.timezone)) if value else None
