"""`hasat watchlists`: stored watch lists, their keys and channels."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import typer
from pydantic import ValidationError
from rich.console import RenderableType
from rich.text import Text

from hasat.clock import system_clock
from hasat.console import context, output
from hasat.console.runtime import run_with_store, with_audit
from hasat.console.tables import Column, outcome
from hasat.deliver.watchlists import lists
from hasat.deliver.watchlists.delivery import attempt
from hasat.deliver.watchlists.lists import (
    LOCAL,
    WatchList,
    WatchListSpec,
    get_watchlist,
    list_watchlists,
    watched_keys,
)
from hasat.deliver.watchlists.messages import WatchMessage
from hasat.deliver.webhooks import AttemptResult
from hasat.errors import HasatError, NotFoundError, UsageError
from hasat.feed.dataset import Dataset
from hasat.messages import msg, template
from hasat.source.installed import all_datasets
from hasat.store import Store
from hasat.tables import Cell, cell_text, read_table

_TABLES = frozenset((".csv", ".tsv", ".xlsx"))

app = typer.Typer(help="Watch lists: keys or filters, and where changes go.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The name of the list.")]
OwnerFlag = Annotated[
    str | None,
    typer.Option(
        metavar="OWNER", help="Whose list: key:ID or local; needed only if a name is not unique."
    ),
]


@app.command("list")
def list_(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """List the watch lists of all owners.

    Examples: `hasat watchlists list` · `hasat watchlists list --json`
    """
    found = run_with_store(context.get_settings(ctx), list_watchlists)

    def human() -> RenderableType:
        if not found:
            return output.text(
                [msg("No watch lists. Create one with `hasat watchlists create NAME`.")]
            )
        table = output.table(
            "name",
            Column("owner", 3),
            "dataset",
            Column("watches", 2, wraps=True),
            Column("mode", 4),
            Column("channels", 1),
            "state",
            Column("waiting", numeric=True),
        )
        for one in found:
            table.add_row(
                one.name,
                one.owner_name or one.owner,
                one.dataset,
                _watches(one),
                one.mode,
                ", ".join(channel.type for channel in one.channels) or msg("none"),
                outcome(_state(one)),
                str(one.waiting + one.collected),
            )
        return table

    output.emit([one.public() for one in found], json=json, human=human)


@app.command()
def show(
    ctx: typer.Context,
    name: NameArgument,
    owner: OwnerFlag = None,
    json: output.JsonFlag = False,
) -> None:
    """Show one watch list with its keys and channels.

    Example: `hasat watchlists show customers`
    """

    async def read(store: Store) -> dict[str, Any]:
        found = await get_watchlist(store, name, owner)
        keys = {} if found.filter is not None else {"keys": await watched_keys(store, found)}
        return {**found.public(), **keys}

    document = run_with_store(context.get_settings(ctx), read)

    def human() -> Text:
        return Text("\n".join(f"{name}: {value}" for name, value in document.items()))

    output.emit(document, json=json, human=human)


@app.command()
def create(
    ctx: typer.Context,
    name: NameArgument,
    dataset: Annotated[str, typer.Option(help="The dataset to watch.")],
    key: Annotated[list[str] | None, typer.Option(help="A key to watch; may be repeated.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="A file with keys, as `import` reads it.")
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="COLUMN=VALUE", help="A condition instead of keys; may be repeated."
        ),
    ] = None,
    webhook: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Send signed HTTP requests there.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option(help="The key that signs them, e.g. whsec_...")
    ] = None,
    email: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="Send e-mail to this address.")
    ] = None,
    slack: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="An incoming webhook of Slack.")
    ] = None,
    teams: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="An incoming webhook of Teams.")
    ] = None,
    telegram: Annotated[
        list[str] | None, typer.Option(metavar="CHAT", help="A Telegram chat of the bot.")
    ] = None,
    mode: Annotated[
        Literal["immediate", "hourly", "daily"], typer.Option(help="When changes are sent.")
    ] = "immediate",
    owner: Annotated[
        str, typer.Option(metavar="OWNER", help="Whose list it is: key:ID or local.")
    ] = LOCAL,
    json: output.JsonFlag = False,
) -> None:
    """Create a watch list; it watches from now on.

    Examples: `hasat watchlists create customers --dataset einvoice --file customers.txt
    --email muhasebe@example.com --mode daily` ·
    `hasat watchlists create superlig --dataset fixtures --filter league_id=203 --slack URL`
    """
    channels: list[dict[str, Any]] = [
        {"type": "webhook", "url": url, "secret": secret} for url in webhook or ()
    ]
    channels += [{"type": "email", "to": email}] if email else []
    channels += [{"type": "slack", "url": url} for url in slack or ()]
    channels += [{"type": "teams", "url": url} for url in teams or ()]
    channels += [{"type": "telegram", "chat": chat} for chat in telegram or ()]
    watched = _dataset(dataset)
    keys = [*(key or ()), *(_read_keys(watched, file) if file is not None else ())]
    spec = _spec(
        dataset=dataset,
        keys=None if filter_ else keys,
        filter=_conditions(filter_) if filter_ else None,
        channels=channels,
        mode=mode,
    )
    if filter_ and keys:
        raise UsageError(msg("Give keys or filters, not both."))
    settings = context.get_settings(ctx)
    make = with_audit(
        "watchlist.create",
        name,
        lambda store: lists.create_watchlist(store, settings, watched, name, owner, spec),
    )
    made = run_with_store(settings, make, creates=True)
    output.emit(
        made.public(),
        json=json,
        human=lambda: msg(
            "{name} watches {what} of {dataset} from now on.",
            name=made.name,
            what=_watches(made),
            dataset=made.dataset,
        ),
    )


@app.command()
def add(
    ctx: typer.Context,
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys to add.")],
    owner: OwnerFlag = None,
    json: output.JsonFlag = False,
) -> None:
    """Add keys to a watch list; their changes count from now on.

    Example: `hasat watchlists add customers 1234567890 10000000146`
    """
    _add(ctx, name, owner, keys, json=json)


@app.command("import")
def import_(
    ctx: typer.Context,
    name: NameArgument,
    file: Annotated[
        Path,
        typer.Argument(help="A CSV, TSV or XLSX file, or a text file with a key in each line."),
    ],
    column: Annotated[
        str | None, typer.Option(help="The column with the keys: its heading or place.")
    ] = None,
    owner: OwnerFlag = None,
    json: output.JsonFlag = False,
) -> None:
    """Add the keys of a file to a watch list; lines that cannot be keys are reported.

    Example: `hasat watchlists import customers customers.xlsx`
    """
    _add(ctx, name, owner, file, column, json=json)


@app.command()
def remove(
    ctx: typer.Context,
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys to remove.")],
    owner: OwnerFlag = None,
    json: output.JsonFlag = False,
) -> None:
    """Remove keys from a watch list.

    Example: `hasat watchlists remove customers 1234567890`
    """

    async def change(store: Store) -> int:
        return await lists.remove_keys(store, await get_watchlist(store, name, owner), keys)

    removing = with_audit("watchlist.keys", name, change)
    removed = run_with_store(context.get_settings(ctx), removing)
    output.emit(
        {"removed": removed},
        json=json,
        human=lambda: msg("{count:,} removed from {name}.", count=removed, name=name),
    )


@app.command()
def delete(
    ctx: typer.Context, name: NameArgument, owner: OwnerFlag = None, json: output.JsonFlag = False
) -> None:
    """Delete a watch list; what was not delivered yet becomes a dead letter.

    Example: `hasat watchlists delete customers`
    """

    async def change(store: Store) -> None:
        await lists.delete_watchlist(store, await get_watchlist(store, name, owner))

    run_with_store(context.get_settings(ctx), with_audit("watchlist.delete", name, change))
    output.emit({"deleted": name}, json=json, human=lambda: msg("Deleted {name}.", name=name))


@app.command("test")
def send_test(
    ctx: typer.Context, name: NameArgument, owner: OwnerFlag = None, json: output.JsonFlag = False
) -> None:
    """Send a test message to each channel now, without the outbox; exits 1 if one is not accepted.

    Example: `hasat watchlists test customers`
    """
    settings = context.get_settings(ctx)

    async def send_tests(store: Store) -> list[tuple[Any, AttemptResult]]:
        found = await get_watchlist(store, name, owner)
        message = WatchMessage(found.name, _dataset(found.dataset), [], is_test=True)
        now = system_clock()
        results = await asyncio.gather(
            *(attempt(one, message, uuid4(), settings, now) for one in found.channels)
        )
        return list(zip(found.channels, results, strict=True))

    results = run_with_store(settings, send_tests)
    if not results:
        raise UsageError(msg("The watch list {name!r} has no channel.", name=name))
    rows = [
        {**channel.public(), "status": result.status, "error": result.error}
        for channel, result in results
    ]

    def human() -> RenderableType:
        table = output.table("channel", "to", "result")
        for channel, result in results:
            said = result.error or msg("responded with {status}", status=result.status)
            table.add_row(channel.type, channel.place, said)
        return table

    output.emit(rows, json=json, human=human)
    if any(result.error is not None for _, result in results):
        raise typer.Exit(1)


def _add(
    ctx: typer.Context,
    name: str,
    owner: str | None,
    given: list[str] | Path,
    column: str | None = None,
    *,
    json: bool,
) -> None:
    async def change(store: Store) -> tuple[int, int]:
        found = await get_watchlist(store, name, owner)
        dataset = _dataset(found.dataset)
        keys = _read_keys(dataset, given, column) if isinstance(given, Path) else given
        return await lists.add_keys(store, dataset, found, keys), len(keys)

    adding = with_audit("watchlist.keys", name, change)
    added, total = run_with_store(context.get_settings(ctx), adding)
    output.emit(
        {"added": added, "given": total},
        json=json,
        human=lambda: msg(
            "{added:,} of {total:,} keys added to {name}; it had the others.",
            added=added,
            total=total,
            name=name,
        ),
    )


def _read_keys(dataset: Dataset, file: Path, column: str | None = None) -> list[str]:
    """Return the keys of a file; report lines that cannot be keys of the dataset."""
    keys = []
    for number, line in _lines_of(dataset, file, column):
        key = line.strip()
        if not key:
            continue
        try:
            dataset.check_keys([key])
        except HasatError as error:
            output.note(msg("Line {number}: {error}", number=number, error=error.message))
        else:
            keys.append(key)
    if not keys:
        raise UsageError(msg("{file} has no keys of {dataset}.", file=file, dataset=dataset.name))
    return keys


def _lines_of(dataset: Dataset, file: Path, column: str | None) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the lines: of a table, the cells of the column with keys."""
    if file.suffix.lower() not in _TABLES:
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeError) as error:
            raise UsageError(
                msg("{file} cannot be read: {error}.", file=file, error=error)
            ) from error
        yield from enumerate(text.splitlines(), 1)
        return
    if not file.is_file():
        raise UsageError(msg("There is no file {path}.", path=str(file)))

    def share_of_keys(cells: Sequence[Cell]) -> float:
        return sum(_is_key(dataset, cell_text(cell)) for cell in cells) / len(cells)

    looked_for = msg("keys of {dataset}", dataset=dataset.name)
    with read_table(file, score=share_of_keys, looked_for=looked_for, column=column) as table:
        for number, row in enumerate(table.rows(), 1):
            if number > (table.heading or 0) and table.column < len(row):
                yield number, cell_text(row[table.column])


def _is_key(dataset: Dataset, text: str) -> bool:
    try:
        dataset.check_keys([text.strip()])
    except HasatError:
        return False
    return True


def _dataset(name: str) -> Dataset:
    datasets = {one.name: one for one in all_datasets()}
    if name not in datasets:
        raise NotFoundError(
            msg("There is no dataset {dataset!r}.", dataset=name),
            remedy=msg("Known datasets: {datasets}.", datasets=", ".join(sorted(datasets))),
        )
    return datasets[name]


def _conditions(pairs: list[str]) -> dict[str, str]:
    conditions = {}
    for pair in pairs:
        column, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(msg("--filter {pair!r} is not COLUMN=VALUE.", pair=pair))
        conditions[column.strip()] = value
    return conditions


def _spec(**values: Any) -> WatchListSpec:
    try:
        return WatchListSpec.model_validate(values)
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ")
            for one in error.errors(include_input=False)
        )
        raise UsageError(
            msg("The watch list cannot be created: {mistakes}.", mistakes=mistakes)
        ) from error


def _watches(one: WatchList) -> str:
    if one.filter is None:
        if one.key_count == 1:
            return msg("1 key")
        return msg("{count:,} keys", count=one.key_count)
    return ", ".join(f"{name}={value}" for name, value in one.filter.items())


def _state(one: WatchList) -> str:
    if one.paused:
        return "paused"
    return template("changes lost") if one.gap else "active"
