"""The commands `hasat gib`: sync, check, look up and search the taxpayer lists."""

from typing import Annotated, Any, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from hasat.clock import parse_local_time
from hasat.console import context, output
from hasat.console.holds import (
    EXIT_CODES,
    decision_json,
    decision_text,
    preview_lines,
    run_json,
    run_lines,
)
from hasat.console.runtime import (
    archive_without_workers,
    build_catalogue,
    open_existing_store,
    open_migrated_store,
    with_audit,
)
from hasat.console.tables import Column, local_time, outcome
from hasat.errors import NotFoundError, UsageError
from hasat.feed.dataset import Dataset
from hasat.feed.holds import Hold, find_hold, list_holds
from hasat.jobs import Run, run_in_foreground
from hasat.jobs.runs import get_run, list_runs
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.gib.check.command import check, checksum_text
from hasat.sources.gib.settings import GibSettings
from hasat.store import Store

app = typer.Typer(help="The taxpayer lists of the Revenue Administration.", no_args_is_help=True)
app.command()(check)

RunArgument = Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The run's number.")]
DatasetOption = Annotated[
    Literal["einvoice", "edespatch"] | None, typer.Option(help="Only this dataset.")
]


@app.command()
def sync(
    ctx: typer.Context,
    pk: Annotated[
        str | None, typer.Option(metavar="SRC", help="The PK list: a file or an address.")
    ] = None,
    gb: Annotated[
        str | None, typer.Option(metavar="SRC", help="The GB list: a file or an address.")
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Update both datasets from the lists now.

    Exits 0 when committed or unchanged, 3 when another sync is running, 4 when the guard holds the
    run, 1 when it failed. Examples: `hasat gib sync` · `hasat gib sync --pk pk.zip --gb gb.zip`
    """
    params = {key: value for key, value in (("pk", pk), ("gb", gb)) if value is not None}
    _run(context.get_settings(ctx), params, json=json)


@app.command()
def runs(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of runs.")] = 20,
    json: output.JsonFlag = False,
) -> None:
    """List stored syncs, newest first; held ones wait for a decision.

    Examples: `hasat gib runs` · `hasat gib runs --json`
    """
    settings = context.get_settings(ctx)

    async def read() -> list[dict[str, Any]]:
        async with open_existing_store(settings) as store:
            found = await list_runs(store, job="gib_sync", limit=limit)
            holds = await list_holds(store, source="gib", limit=1000)
        held = {run: hold.state for hold in holds for run in hold.runs}
        return [
            {**_result(run), "startedAt": run.started_at, "decision": held.get(run.id)}
            for run in found
        ]

    results = context.run_async(read())

    def human() -> RenderableType:
        table = output.table(
            Column("run", numeric=True),
            "started",
            "outcome",
            "decision",
            Column("einvoice +/~/-", 1),
            Column("edespatch +/~/-", 2),
            Column("message", 3, wraps=True),
        )
        for result in results:
            counts = [
                "/".join(str(one[kind]) for kind in ("added", "modified", "removed"))
                for one in result.get("datasets", {}).values()
            ] or ["", ""]
            table.add_row(
                str(result["run"]),
                local_time(result["startedAt"], settings),
                outcome(result["outcome"]),
                outcome(result["decision"] or ""),
                *counts,
                result.get("message") or "",
            )
        return table

    output.emit(results, json=json, human=human)


@app.command()
def show(ctx: typer.Context, run: RunArgument, json: output.JsonFlag = False) -> None:
    """Show one sync; for a held one, all measures of the guard.

    Example: `hasat gib show 42`
    """
    settings = context.get_settings(ctx)

    async def read() -> tuple[Run, Hold | None]:
        async with open_existing_store(settings) as store:
            return await get_run(store, run), await find_hold(store, run)

    found, held = context.run_async(read())
    if found.job != "gib_sync":
        raise NotFoundError(
            msg("Run {run} is a run of {job}, not of gib_sync.", run=run, job=found.job)
        )
    result = _result(found)
    if held is not None:
        result |= {**decision_json(held), "preview": dict(held.preview)}

    def human() -> Text:
        text = _result_text(result)
        if held is None:
            return text
        decision = msg("Decision: {decision}", decision=decision_text(held, settings))
        return output.text([decision, ""]).append_text(text)

    output.emit(result, json=json, human=human)


@app.command()
def lookup(
    ctx: typer.Context,
    identifier: Annotated[str, typer.Argument(help="A VKN (10 digits) or TCKN (11).")],
    dataset: DatasetOption = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="TIME", help="State at this time, such as 2026-02-19T10:00."
        ),
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Show a taxpayer: current, or at a given time.

    Exits 1 if it is in none of the datasets. Examples: `hasat gib lookup 1234567890` ·
    `hasat gib lookup 1234567890 --dataset einvoice --as-of 2026-02-19T10:00 --json`
    """
    from hasat.sources.gib.identifiers import check_identifier
    from hasat.sources.gib.lookups import (
        look_up,
        look_up_as_of,
        not_a_taxpayer,
        taxpayer_json,
    )

    settings = context.get_settings(ctx)
    check_identifier(identifier)
    at = None if as_of is None else parse_local_time(as_of)

    async def read() -> dict[str, Any]:
        found = {}
        async with open_existing_store(settings) as store, store.connection() as conn:
            for one in _chosen(dataset):
                if at is None:
                    there = await look_up(conn, one, [identifier])
                else:
                    there = await look_up_as_of(conn, one, identifier, at)
                if identifier in there.bodies:
                    found[one.name] = taxpayer_json(there.bodies[identifier])
        if not found:
            names = [one.name for one in _chosen(dataset)]
            where = names[0]
            if len(names) > 1:
                where = msg("{first} or {second}", first=names[0], second=names[1])
            raise not_a_taxpayer(where, identifier, then=at is not None)
        return found

    found = context.run_async(read())
    output.emit(
        found,
        json=json,
        human=lambda: Text("\n\n".join(_card(name, one) for name, one in found.items())),
    )


@app.command()
def search(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="Words of a title or identifier.")] = "",
    alias: Annotated[
        str | None, typer.Option(help="Only taxpayers with this alias or domain.")
    ] = None,
    dataset: DatasetOption = None,
    page: Annotated[int, typer.Option(min=1, max=10**6, help="Page number.")] = 1,
    size: Annotated[int, typer.Option(min=1, max=100, help="Taxpayers per page.")] = 20,
    json: output.JsonFlag = False,
) -> None:
    """Find taxpayers by words of their title or identifier, or by an alias or its domain.

    Words match in any order and case, and Turkish letters need not be typed: isik finds IŞIK. If
    nothing has all words, similar titles are shown. Examples:
    `hasat gib search "ışık makine"` · `hasat gib search --alias defaultpk@ornek.com.tr --json`
    """
    from hasat.feed.changes import head_of
    from hasat.sources.gib.lookups import taxpayer_json
    from hasat.sources.gib.search import MIN_LETTERS, load_search_state
    from hasat.sources.gib.search import search as search_dataset

    settings = context.get_settings(ctx)
    if not text and alias is None:
        raise UsageError(
            msg("There is nothing to search for."), remedy=msg("Give a text, or --alias.")
        )
    if alias is None and len(text) < MIN_LETTERS:
        raise UsageError(
            msg("{text!r} is too short to search for.", text=text),
            remedy=msg("Give at least {min_letters} letters.", min_letters=MIN_LETTERS),
        )

    async def read() -> tuple[dict[str, Any], str | None]:
        results = {}
        async with open_existing_store(settings) as store, store.connection() as conn:
            for one in _chosen(dataset):
                await head_of(conn, one.name)
                found = await search_dataset(
                    conn,
                    one,
                    text=text,
                    alias=alias,
                    page=page,
                    size=size,
                    personal=settings.section(GibSettings).search_personal_numbers,
                )
                results[one.name] = {
                    "items": [taxpayer_json(body) for body in found.bodies],
                    "totalCount": found.total,
                    "page": page,
                    "pageSize": size,
                    **({"similar": True} if found.similar else {}),
                }
            return results, (await load_search_state(conn)).remark()

    results, remark = context.run_async(read())
    if remark is not None:
        output.note(remark)

    def human() -> Group:
        parts: list[RenderableType] = []
        for name, result in results.items():
            table = output.table(
                "identifier", Column("title", wraps=True), Column("aliases", 1, wraps=True)
            )
            for item in result["items"]:
                names = sorted({alias["name"] for alias in item["aliases"]})
                aliases: str = ", ".join(names[:2])
                if len(names) > 2:
                    more = len(names) - 2
                    aliases = msg("{names} and {count:,} more", names=aliases, count=more)
                table.add_row(item["identifier"], item["title"] or "", aliases)
            values = {
                "dataset": name,
                "count": result["totalCount"],
                "page": page,
                "pages": -(-result["totalCount"] // size),
            }
            if "similar" in result:
                found = msg("{dataset}: {count:,} similar, page {page} of {pages:,}", **values)
            else:
                found = msg("{dataset}: {count:,} found, page {page} of {pages:,}", **values)
            parts.append(output.text([found]))
            if result["items"]:
                parts.append(table)
        return Group(*parts)

    output.emit(results, json=json, human=human)


def _chosen(name: str | None) -> tuple[Dataset, ...]:
    from hasat.sources.gib.datasets import DATASETS

    return tuple(one for one in DATASETS if name in {None, one.name})


def _card(name: str, item: dict[str, Any]) -> str:
    """Return a taxpayer as text."""
    rows = [
        (
            msg("identifier"),
            msg(
                "{identifier} ({kind}, {checksum})",
                identifier=item["identifier"],
                kind=item["identifierKind"],
                checksum=checksum_text(item["identifierValid"]),
            ),
        ),
        (msg("type"), item["type"] or "-"),
        (msg("account"), item["accountType"] or "-"),
        (msg("since"), item["firstCreationTime"] or "-"),
    ]
    for alias in item["aliases"]:
        since = msg("since {time}", time=alias["creationTime"] or "-")
        label = msg("{type} alias", type=alias["type"])
        rows.append((label, msg("{name} ({since})", name=alias["name"], since=since)))
    return "\n".join([f"{name}: {item['title']}", *output.fields(rows)])


def _run(settings: Settings, params: dict[str, Any], *, json: bool) -> None:
    async def run_list(store: Store) -> Run:
        with output.progress_bar("gib sync") as on_progress:
            return await run_in_foreground(
                build_catalogue(settings),
                store,
                settings,
                "gib_sync",
                params,
                on_progress,
                output.note,
            )

    async def perform() -> Run:
        async with open_migrated_store(settings) as store:
            run = await with_audit("run.start", "gib_sync", run_list)(store)
            await archive_without_workers(store, settings)
            return run

    result = _result(context.run_async(perform()))
    output.emit(result, json=json, human=lambda: _result_text(result))
    raise typer.Exit(EXIT_CODES.get(result["outcome"], 1))


def _result(run: Run) -> dict[str, Any]:
    """Return a run as the command prints it."""
    return {"lists": {}, **run_json(run)}


def _result_text(result: dict[str, Any]) -> Text:
    lines = run_lines(result)
    for name, one in result["lists"].items():
        lines.append(
            msg(
                "  {list} list: {users:,} users, {rejected:,} unreadable, "
                "{duplicates:,} of taxpayers listed before, {bytes:,} bytes",
                list=name,
                duplicates=one.get("duplicates", 0),
                **{count: one[count] for count in ("users", "rejected", "bytes")},
            )
        )
    for name, one in result["datasets"].items():
        counts = ("added", "modified", "removed", "total", "head")
        lines.append(
            msg(
                "  {dataset}: {added:,} added, {modified:,} modified, {removed:,} removed; "
                "{total:,} in total, change {head:,}",
                dataset=name,
                **{count: one[count] for count in counts},
            )
        )
    return output.text([*lines, *preview_lines(result.get("preview", {}))])
