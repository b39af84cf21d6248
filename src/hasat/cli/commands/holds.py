"""The commands `hasat holds`: runs that the guard holds, and the decision about them."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from hasat.console import context, output
from hasat.console.holds import (
    EXIT_CODES,
    decision_text,
    preview_lines,
    run_json,
    run_text,
)
from hasat.console.runtime import (
    archive_without_workers,
    build_catalogue,
    open_existing_store,
    run_with_store,
    with_audit,
)
from hasat.console.tables import Column, local_time, outcome
from hasat.feed.holds import Hold, get_hold, list_holds, reject_hold
from hasat.jobs import Run
from hasat.jobs.approvals import apply_hold
from hasat.jobs.foreground import run_in_foreground
from hasat.jobs.platform_jobs import UNDO_JOB
from hasat.messages import msg
from hasat.settings import Settings
from hasat.settings.reference import plain
from hasat.store import Store
from hasat.text import MAX_EXACT_INTEGER

app = typer.Typer(help="Runs that the guard holds until a decision.", no_args_is_help=True)

HoldArgument = Annotated[
    int, typer.Argument(min=1, max=2**63 - 1, metavar="ID", help="The number of the held run.")
]


@app.command("list")
def list_(
    ctx: typer.Context,
    state: Annotated[
        Literal["waiting", "approved", "rejected", "superseded"] | None,
        typer.Option(help="Only those of this state."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number.")] = 20,
    json: output.JsonFlag = False,
) -> None:
    """List held runs, newest first.

    Examples: `hasat holds list` · `hasat holds list --state waiting --json`
    """
    settings = context.get_settings(ctx)
    found = run_with_store(settings, lambda store: list_holds(store, state=state, limit=limit))

    def human() -> Table:
        table = output.table(
            Column("id", numeric=True),
            "state",
            Column("source", 3),
            Column("datasets", wraps=True),
            "at",
            Column("decided by", 1),
            Column("reason", 2, wraps=True),
        )
        for one in found:
            table.add_row(
                str(one.id),
                outcome(one.state),
                one.source or "",
                ", ".join(one.datasets),
                local_time(one.at, settings),
                one.decided_by or "",
                one.reason or "",
            )
        return table

    output.emit([hold_json(one) for one in found], json=json, human=human)


@app.command()
def show(ctx: typer.Context, hold: HoldArgument, json: output.JsonFlag = False) -> None:
    """Show a held run: the guard's measures, and the changes it would make.

    Example: `hasat holds show 42`
    """
    settings = context.get_settings(ctx)
    found = run_with_store(settings, lambda store: get_hold(store, hold))
    output.emit(hold_json(found), json=json, human=lambda: _text(found, settings))


@app.command()
def approve(
    ctx: typer.Context,
    hold: HoldArgument,
    reason: output.ReasonOption = None,
    json: output.JsonFlag = False,
) -> None:
    """Approve a held run: apply its input exactly as it was.

    Exits 0 when applied, 3 when another run of the job is running, 1 when it failed. If only
    another machine has the input, the approval is queued for a worker there.
    Example: `hasat holds approve 42 --reason "The list was cleaned up"`
    """
    settings = context.get_settings(ctx)

    async def apply(store: Store) -> Run:
        with output.progress_bar("approve") as on_progress:
            return await apply_hold(
                store, settings, build_catalogue(settings), hold, on_progress, output.note
            )

    async def perform() -> Run:
        async with open_existing_store(settings) as store:
            run = await with_audit("hold.approve", hold, apply, reason=reason)(store)
            if run.state == "finished":
                await archive_without_workers(store, settings)
            return run

    result = run_json(context.run_async(perform()))
    output.emit(result, json=json, human=lambda: run_text(result))
    raise typer.Exit(EXIT_CODES.get(result["outcome"], 1))


@app.command()
def reject(
    ctx: typer.Context,
    hold: HoldArgument,
    reason: output.ReasonOption = None,
    json: output.JsonFlag = False,
) -> None:
    """Reject a held run; it cannot be approved afterwards.

    Example: `hasat holds reject 42 --reason "Half of the list is missing"`
    """
    settings = context.get_settings(ctx)
    perform = with_audit(
        "hold.reject", hold, lambda store: reject_hold(store, settings, hold), reason=reason
    )
    found = run_with_store(settings, perform)
    output.emit(
        {"run": found.id, **hold_json(found)},
        json=json,
        human=lambda: msg("Run {run} is rejected.", run=found.id),
    )


@app.command()
def undo(
    ctx: typer.Context,
    run: Annotated[
        int, typer.Argument(min=1, max=MAX_EXACT_INTEGER, metavar="RUN", help="The run to undo.")
    ],
    reason: output.ReasonOption = None,
    json: output.JsonFlag = False,
) -> None:
    """Prepare an undo of the changes of a run, such as one that applied an approved hold.

    The guard holds the undo: `hasat holds show` has its effect, and nothing changes before
    `hasat holds approve`. Records that have changed again since keep their newer state.
    Example: `hasat holds undo 43 --reason "The list was cut off after all"`
    """
    settings = context.get_settings(ctx)

    async def prepare(store: Store) -> Run:
        catalogue = build_catalogue(settings)
        return await run_in_foreground(catalogue, store, settings, UNDO_JOB, {"run": run})

    result = run_json(run_with_store(settings, with_audit("run.undo", run, prepare, reason=reason)))
    output.emit(result, json=json, human=lambda: run_text(result))
    raise typer.Exit(0 if result["outcome"] in ("held", "nothing") else 1)


def hold_json(hold: Hold) -> dict[str, Any]:
    """Return a hold as the commands print it."""
    return {**asdict(hold), "params": plain(hold.params)}


def _text(hold: Hold, settings: Settings) -> Text:
    decision = decision_text(hold, settings)
    lines = [
        msg("Run {run} of {job}: {decision}", run=hold.id, job=hold.job, decision=decision),
        msg("  Held at {time}.", time=local_time(hold.at, settings)),
    ]
    if hold.machine:
        lines.append(msg("  The input is stored on {machine}.", machine=hold.machine))
    return output.text([*lines, *preview_lines(hold.preview)])
