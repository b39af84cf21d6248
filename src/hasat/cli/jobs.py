"""`hasat jobs`: what runs when, what has run, and running it now."""

import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from json import dumps, loads
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from hasat.cli import manners
from hasat.cli.house import acting, archive_without_workers, catalogue_of, in_house, open_house
from hasat.clock import zone
from hasat.errors import UsageError
from hasat.jobs import Job, Run, run_in_foreground
from hasat.jobs.catalogue import unknown_params
from hasat.jobs.context import OnProgress
from hasat.jobs.queue import queue_run, retry_run, stop_run
from hasat.jobs.runs import (
    count_live_workers,
    get_run,
    list_runs,
    schedule_overview,
)
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store

app = typer.Typer(help="What runs when, what has run, and running it now.", no_args_is_help=True)

_EXIT = {"done": 0, "nothing": 3, "skipped": 3, "held": 4, "out_of_quota": 5, "interrupted": 130}


@app.command("list")
def list_jobs(ctx: typer.Context, json: manners.JsonFlag = False) -> None:
    """Every job: when it is due next, and how its last run ended.

    Examples: `hasat jobs list` · `hasat jobs list --json`
    """
    settings = manners.settings_of(ctx)

    entries = in_house(settings, lambda store: schedule_overview(store, catalogue_of(settings)))
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

    def human() -> Table:
        table = _table("job", "source", "lane", "cron", "next due", "last run", "outcome")
        for entry in entries:
            job, last = entry.job, entry.last_run
            due = _moment(entry.next_due, settings) if job.enabled else "off"
            cron = f"{job.cron} {job.zone}" if job.cron else "by hand"
            began = _moment(last.started_at or last.queued_at, settings) if last else "never"
            table.add_row(
                job.name,
                job.source or "",
                job.lane,
                cron,
                due,
                began,
                (last.outcome or last.state) if last else "",
            )
        return table

    manners.emit(value, json=json, human=human)


@app.command("run")
def run_now(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="The job; without it, the one JOB_ID names.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A parameter: JSON, or else text."),
    ] = None,
    queue: Annotated[
        bool, typer.Option("--queue", help="Leave it to a worker, and print the run's number.")
    ] = False,
    reason: manners.ReasonOption = None,
    json: manners.JsonFlag = False,
) -> None:
    """Run a job here and now; needs no worker, and works for disabled jobs too.

    Exits by the outcome: done 0, nothing to do or running already 3, held 4, out of quota 5,
    failed 1. With --queue a worker runs it; 3 if a run of the job is queued or running already,
    unless its runs wait for each other. Examples: `hasat jobs run housekeeping` ·
    `hasat jobs run gib_sync --queue` · `ONLY_LEAGUE_ID=39 JOB_ID=top_scorers_daily hasat jobs
    run --json`
    """
    settings = manners.settings_of(ctx)
    name = name or settings.jobs.job_id
    if name is None:
        raise UsageError(
            msg("Which job?"), remedy=msg("Name it, or set JOB_ID; `hasat jobs list` shows them.")
        )
    chosen = {key: _value(text) for key, text in manners.parse_pairs(param or []).items()}

    catalogue = catalogue_of(settings)
    params = _params(settings, catalogue.get(name), chosen)
    if queue:
        _emit_queued(
            settings,
            acting(
                "run.queue",
                name,
                lambda store: queue_run(store, catalogue, name, params, behind_others=False),
                reason=reason,
            ),
            json=json,
        )
        return

    async def run_here(store: Store) -> Run:
        with shown_progress(name) as on_progress:
            return await run_in_foreground(
                catalogue, store, settings, name, params, on_progress, manners.note
            )

    async def perform() -> Run:
        async with open_house(settings) as store:
            run = await acting("run.start", name, run_here, reason=reason)(store)
            await archive_without_workers(store, settings)
            return run

    try:
        done = manners.run_async(perform())
    except typer.Exit:
        manners.note(f"Interrupted; `hasat jobs history {name}` shows the run.")
        raise
    manners.emit(_public(done, settings), json=json, human=lambda: _one(done, settings))
    raise typer.Exit(_EXIT.get(done.outcome or "", 1))


@app.command()
def history(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Only runs of this job.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at the most.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that went wrong.")] = False,
    json: manners.JsonFlag = False,
) -> None:
    """The runs that are kept, newest first.

    Examples: `hasat jobs history` · `hasat jobs history housekeeping --failed --json`
    """
    settings = manners.settings_of(ctx)

    async def read() -> list[Run]:
        async with open_house(settings) as store:
            runs = await list_runs(store, job=name, bad=failed, limit=limit)
            if name is not None and not runs:
                # Runs of a job that is gone are shown; a name that never was is an error.
                catalogue_of(settings).get(name)
            return runs

    runs = manners.run_async(read())

    def human() -> Table | Text:
        if not runs:
            return Text("There are no such runs.")
        table = _table("run", "job", "by", "started", "finished", "outcome", "rows", "message")
        for run in runs:
            table.add_row(
                str(run.id),
                run.job,
                run.trigger,
                _moment(run.started_at, settings),
                _moment(run.finished_at, settings),
                run.outcome or run.state,
                str(run.rows_changed),
                Text(run.message or run.error or ""),
            )
        return table

    manners.emit([_public(run, settings) for run in runs], json=json, human=human)


@app.command()
def show(
    ctx: typer.Context,
    run: Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The run's number.")],
    json: manners.JsonFlag = False,
) -> None:
    """Everything known about one run.

    Example: `hasat jobs show 42 --json`
    """
    settings = manners.settings_of(ctx)

    found = in_house(settings, lambda store: get_run(store, run))
    manners.emit(_public(found, settings), json=json, human=lambda: _one(found, settings))


@app.command()
def retry(
    ctx: typer.Context,
    run: Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The finished run to repeat.")],
    reason: manners.ReasonOption = None,
    json: manners.JsonFlag = False,
) -> None:
    """Queue a new run with the parameters of a finished one; a worker takes it up.

    Example: `hasat jobs retry 42`
    """
    settings = manners.settings_of(ctx)
    retry = acting(
        "run.retry",
        run,
        lambda store: retry_run(store, catalogue_of(settings), run),
        reason=reason,
    )
    _emit_queued(settings, retry, json=json)


@app.command()
def stop(
    ctx: typer.Context,
    run: Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The run to stop.")],
    reason: manners.ReasonOption = None,
    json: manners.JsonFlag = False,
) -> None:
    """Stop a run: one that waits at once, one that works within seconds. What it did stays.

    Example: `hasat jobs stop 42`
    """
    settings = manners.settings_of(ctx)

    stop = acting("run.stop", run, lambda store: stop_run(store, run), reason=reason)
    asked = in_house(settings, stop)
    manners.emit(
        _public(asked, settings),
        json=json,
        human=lambda: Text(f"Run {asked.id} of {asked.job}: {asked.message}"),
    )


def _emit_queued(
    settings: Settings, queue: Callable[[Store], Awaitable[Run]], *, json: bool
) -> None:
    """Queue a run and say which it is, and whether there is anybody to take it up."""

    async def queue_it() -> tuple[Run, int]:
        async with open_house(settings) as store:
            return await queue(store), await count_live_workers(store, settings)

    queued, workers = manners.run_async(queue_it())
    if not workers:
        manners.note("No worker is running; start one with `hasat worker` or `hasat up`.")
    manners.emit(
        _public(queued, settings),
        json=json,
        human=lambda: Text(f"Run {queued.id} of {queued.job} is queued."),
    )


def _value(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        # Also a number of thousands of digits; the check of the parameters refuses it.
        return text


def _params(settings: Settings, job: Job, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen, with the league that the environment names for jobs that ask for one."""
    league = settings.football.only_league_id
    if league is None or unknown_params(job, ["only_league_id"]):
        return dict(chosen)
    return {"only_league_id": league, **chosen}


def _one(run: Run, settings: Settings) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    rows = {
        "run": run.id,
        "job": run.job,
        "outcome": run.outcome or run.state,
        "message": run.message,
        "error": run.error,
        "by": run.trigger,
        "worker": run.worker,
        "attempt": run.attempt,
        "started": _moment(run.started_at, settings),
        "finished": _moment(run.finished_at, settings),
        "rows changed": run.rows_changed,
        "requests": run.requests,
        "progress": dumps(run.progress, ensure_ascii=False) if run.progress else None,
        "detail": dumps(run.detail, ensure_ascii=False) if run.detail else None,
    }
    for label, value in rows.items():
        if value is not None:
            table.add_row(label, Text(str(value)))
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading)
    return table


def _public(run: Run, settings: Settings) -> dict[str, Any]:
    """A run as JSON shows it, with its times in the scheduler's zone."""
    return {
        key: _local(value, settings) if isinstance(value, datetime) else value
        for key, value in asdict(run).items()
    }


def _local(value: datetime | None, settings: Settings) -> datetime | None:
    return value.astimezone(zone(settings.jobs.timezone)) if value else None


def _moment(value: datetime | None, settings: Settings) -> str:
    local = _local(value, settings)
    return local.strftime("%Y-%m-%d %H:%M:%S") if local else "-"


@contextmanager
def shown_progress(name: str) -> Iterator[OnProgress | None]:
    """A bar on stderr, for a person at a terminal only."""
    if not manners.is_terminal():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=manners.stderr(), transient=True) as bars, _logs_above_bars():
        bar = bars.add_task(name, total=None)

        def on_progress(done: float, total: float | None, note: str) -> None:
            bars.update(bar, completed=done, total=total, description=f"{name} {note}".strip())

        yield on_progress


@contextmanager
def _logs_above_bars() -> Iterator[None]:
    """Log lines through the stderr that the bars have put in place, or they would mix with them."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.__stderr__
    ]
    for handler in handlers:
        handler.setStream(sys.stderr)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(sys.__stderr__)
