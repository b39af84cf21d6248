"""`hasat football`: the mirror of API-Football."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hasat.cli import context, output
from hasat.cli.runtime import archive_without_workers, open_migrated_store, with_audit
from hasat.settings import Settings

if TYPE_CHECKING:
    from hasat.feed.rebuild import RebuildResult
    from hasat.sources.football.ingest.rebuild import RebuildSummary

app = typer.Typer(no_args_is_help=True, help="Matches, tables and players of API-Football.")

_HOW = {
    "intact": "unchanged",
    "repaired": "repaired; consumers continue",
    "changed": "differences published as changes",
    "new_epoch": "loaded again; consumers start over from an archive",
}


@app.callback()
def _group() -> None:
    """Keep `football` a group while it has one command."""


@app.command()
def rebuild(
    ctx: typer.Context,
    force: Annotated[
        bool,
        typer.Option("--force", help="Publish the result even if it has far fewer records."),
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Rebuild tables from stored responses, without requests to the API.

    Reads every stored response, including Parquet files. If the result equals what was published,
    damaged tables are repaired and consumers do not notice. Exits with 3 if there are no responses,
    with 4 if they contain far fewer records than published.

    Example: `hasat football rebuild --json`
    """
    settings = context.get_settings(ctx)
    result = context.run_async(_rebuild(settings, force=force))
    output.emit(result, json=json, human=lambda: _summary(result))


async def _rebuild(settings: Settings, *, force: bool) -> dict[str, Any]:
    from hasat.sources.football.ingest.rebuild import rebuild as rebuild_tables

    started = time.monotonic()
    # One connection reads while another writes.
    async with open_migrated_store(
        settings, pool_size=max(2, settings.database.pool_size)
    ) as store:
        with output.progress_bar("football rebuild") as show:

            def on_progress(responses: int) -> None:
                if show is not None:
                    show(responses, None, "responses")

            rebuilding = with_audit(
                "football.rebuild",
                "football",
                lambda store: rebuild_tables(store, settings, force=force, on_progress=on_progress),
                takes_long=True,
                force=force,
            )
            done = await rebuilding(store)
        await archive_without_workers(store, settings)
    return _document(done, time.monotonic() - started)


def _document(done: "RebuildSummary", seconds: float) -> dict[str, Any]:
    return {
        "answers": done.responses,
        "unreadable": done.unreadable,
        "notesPutBack": done.restored,
        "requests": 0,
        "seconds": round(seconds, 3),
        "datasets": [_dataset(one) for one in done.datasets],
    }


def _dataset(one: "RebuildResult") -> dict[str, Any]:
    return {
        "dataset": one.dataset,
        "how": one.how,
        "records": one.records,
        "digest": one.digest.hex(),
        "repaired": one.repaired,
        "added": one.changes.added,
        "modified": one.changes.modified,
        "removed": one.changes.removed,
    }


def _summary(result: dict[str, Any]) -> Text:
    lines = [f"Read {result['answers']:,} responses in {result['seconds']:.1f} s, no requests."]
    lines += [
        f"  {one['dataset']:<20} {one['records']:>10,}  {_HOW[one['how']]}"
        for one in result["datasets"]
    ]
    if result["unreadable"]:
        lines.append(f"Quarantined {result['unreadable']:,} unreadable parts in raw.set_aside.")
    return Text("\n".join(lines))
