"""Rebuild a dataset from a command: run the job, and print the result."""

from typing import Any

import typer
from rich.text import Text

from hasat.console import context, output
from hasat.console.holds import run_json
from hasat.console.runtime import (
    archive_without_workers,
    build_catalogue,
    open_existing_store,
    with_audit,
)
from hasat.console.tables import outcome
from hasat.errors import NotFoundError
from hasat.jobs import Run, run_in_foreground
from hasat.jobs.platform_jobs import REBUILD_JOB
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source.installed import all_rebuilds
from hasat.store import Store

_HOW = {
    "intact": msg("unchanged"),
    "repaired": msg("repaired; consumers continue"),
    "changed": msg("differences published as changes"),
    "new_epoch": msg("loaded again; consumers start over from an archive"),
}
_EXIT_CODES = {"done": 0, "nothing": 3, "skipped": 3, "held": 4, "interrupted": 130}


def rebuild_dataset(
    settings: Settings,
    name: str,
    *,
    json: bool,
    action: str = "dataset.rebuild",
    target: str | None = None,
) -> None:
    """Rebuild a dataset, print the result and exit; `action` and `target` are for the audit."""
    if name not in (known := all_rebuilds()):
        raise NotFoundError(
            msg("There is no dataset named {name!r} that can be rebuilt.", name=name),
            remedy=msg("Choose one of: {names}.", names=", ".join(sorted(known))),
        )
    run = context.run_async(_rebuild(settings, name, action, target or name))
    result = run_json(run)
    output.emit(result, json=json, human=lambda: _summary(run, result))
    raise typer.Exit(_EXIT_CODES.get(run.outcome or run.state, 1))


async def _rebuild(settings: Settings, name: str, action: str, target: str) -> Run:
    async def perform(store: Store) -> Run:
        with output.progress_bar(f"rebuild {target}") as on_progress:
            return await run_in_foreground(
                build_catalogue(settings),
                store,
                settings,
                REBUILD_JOB,
                {"dataset": name},
                on_progress,
                output.note,
            )

    # One connection reads while another writes.
    pool_size = max(2, settings.database.pool_size)
    async with open_existing_store(settings, pool_size=pool_size) as store:
        run = await with_audit(action, target, perform, takes_long=True)(store)
        await archive_without_workers(store, settings)
    return run


def _summary(run: Run, result: dict[str, Any]) -> Text:
    if run.outcome != "done":
        return output.text([result.get("message") or outcome(run.outcome or run.state).plain])
    lines: list[str] = [
        msg(
            "Read {count:,} responses in {seconds:.1f} s, no requests.",
            count=result["answers"],
            seconds=result["seconds"],
        )
    ]
    for one in result["datasets"]:
        records = output.shown(output.number(one["records"]))
        lines.append(f"  {one['dataset']:<20} {records:>10}  {output.shown(_HOW[one['how']])}")
    if result["unreadable"]:
        count = result["unreadable"]
        lines.append(msg("Quarantined {count:,} unreadable parts in raw.set_aside.", count=count))
    return output.text(lines)
