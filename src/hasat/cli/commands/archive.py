"""`hasat archive`: list, write and verify archives of datasets."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from hasat.console import context, output
from hasat.console.runtime import open_existing_store, run_with_store, with_audit
from hasat.console.tables import Column, local_time
from hasat.errors import NotFoundError
from hasat.feed.archive import Archive, storage_of, write_archives
from hasat.feed.archive.catalog import NoArchiveError, list_archives
from hasat.feed.dataset import Dataset
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source.installed import all_datasets
from hasat.store import Store

app = typer.Typer(help="Archives: whole datasets as files.", no_args_is_help=True)

DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help="Such as einvoice.")]


@app.command("list")
def list_(
    ctx: typer.Context,
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="Such as einvoice; all without it.")
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """List the archives of one dataset or of all, newest first.

    Examples: `hasat archive list` · `hasat archive list einvoice --json`
    """
    settings = context.get_settings(ctx)
    names = (
        [one.name for one in all_datasets()] if dataset is None else [_get_dataset(dataset).name]
    )

    async def load(store: Store) -> list[Archive]:
        return [one for name in names for one in await list_archives(store, name)]

    _emit(run_with_store(settings, load), settings, json=json)


@app.command()
def write(
    ctx: typer.Context,
    dataset: DatasetArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also if the newest archive is up to date.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Write an archive if the newest one is missing or out of date, and delete expired ones.

    Examples: `hasat archive write einvoice` · `hasat archive write einvoice --force`
    """
    settings = context.get_settings(ctx)
    wanted = _get_dataset(dataset)
    writing = with_audit(
        "archive.write",
        wanted.name,
        lambda store: write_archives(store, settings, wanted, force=force),
        takes_long=True,
    )
    written = run_with_store(settings, writing)
    if not written:
        output.note(msg("{dataset} has not changed since its newest archive.", dataset=wanted.name))
    _emit(written, settings, json=json)


@app.command("verify")
def verify_(
    ctx: typer.Context,
    dataset: DatasetArgument,
    everything: Annotated[
        bool, typer.Option("--all", help="Every archive, not only the newest.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Read archives back and check their counts and digests; exits 1 if one is faulty.

    Examples: `hasat archive verify einvoice` · `hasat archive verify einvoice --all --json`
    """
    from hasat.feed.archive.verification import Verification, verify

    settings = context.get_settings(ctx)
    name = _get_dataset(dataset).name

    async def perform() -> list[Verification]:
        storage = storage_of(settings)
        async with open_existing_store(settings) as store:
            found = await list_archives(store, name)
        if not found:
            raise NoArchiveError(
                msg("{name} has no archive yet.", name=name),
                remedy=msg("Write one: hasat archive write {name}", name=name),
            )
        newest = [one for one in found if everything or one.batch == found[0].batch]
        return [await verify(storage, archive) for archive in newest]

    findings = context.run_async(perform())
    output.emit(
        [{"fileName": one.name, "faults": list(one.faults)} for one in findings],
        json=json,
        human=lambda: Text(
            "\n".join(
                f"{one.name}: {'; '.join(one.faults) if one.faults else 'ok'}" for one in findings
            )
        ),
    )
    if any(one.faults for one in findings):
        raise typer.Exit(1)


def _get_dataset(name: str) -> Dataset:
    datasets = {one.name: one for one in all_datasets()}
    if name not in datasets:
        raise NotFoundError(
            msg("There is no dataset named {name!r}.", name=name),
            remedy=msg("Known datasets: {datasets}.", datasets=", ".join(datasets)),
        )
    return datasets[name]


def _emit(archives: Sequence[Archive], settings: Settings, *, json: bool) -> None:
    listed: list[dict[str, Any]] = [archive.summary() for archive in archives]

    def human() -> RenderableType:
        table = output.table(
            "file",
            Column("bytes", 1, numeric=True),
            Column("records", 2, numeric=True),
            Column("change", 3, numeric=True),
            Column("state at", 4),
        )
        for archive, one in zip(archives, listed, strict=True):
            table.add_row(
                one["fileName"],
                output.number(one["sizeBytes"]),
                output.number(one["userCount"]),
                output.number(one["head"]),
                local_time(archive.committed_at, settings),
            )
        return table

    output.emit(listed, json=json, human=human)
