"""The command `hasat gib check`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hasat.console import context, output
from hasat.console.runtime import open_existing_store
from hasat.errors import UsageError
from hasat.messages import language_of_environment, msg
from hasat.settings import Settings

if TYPE_CHECKING:
    from hasat.sources.gib.check.customers import CheckedCustomers

_ENDINGS = frozenset((".csv", ".tsv", ".txt", ".xlsx", ".xls", ".xlsm", ".ods"))


def check(
    ctx: typer.Context,
    identifiers: Annotated[
        list[str],
        typer.Argument(metavar="VKN...|FILE", help="VKNs and TCKNs, or a list of customers."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the checked list of customers.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="The column with the identifiers: its heading or place.")
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Check whether to send an e-Fatura or an e-Arşiv invoice, and where to.

    A list of customers is a CSV, TSV or XLSX file; the answers are added after its columns. Exits 2
    if a given identifier is malformed. Examples: `hasat gib check 1234567890 10000000146` ·
    `hasat gib check customers.xlsx --out checked.xlsx`
    """
    settings = context.get_settings(ctx)
    source = Path(identifiers[0])
    if len(identifiers) == 1 and (out is not None or source.suffix.lower() in _ENDINGS):
        _check_file(settings, source, out, column, json=json)
    elif out is not None or column is not None:
        raise UsageError(
            msg("--out and --column are for a list of customers."), remedy=msg("Give one file.")
        )
    else:
        _check_identifiers(settings, identifiers, json=json)


def _check_identifiers(settings: Settings, identifiers: list[str], *, json: bool) -> None:
    from hasat.sources.gib.check.answers import check as check_identifiers
    from hasat.sources.gib.identifiers import malformed_entry, malformed_identifier

    async def read() -> tuple[dict[str, Any], list[str]]:
        async with open_existing_store(settings) as store, store.connection() as conn:
            found = await check_identifiers(conn, identifiers)
        faults = [(one, found.find_malformation(one)) for one in identifiers]
        items = [found.answer(one) for one, fault in faults if fault is None]
        entries = [malformed_entry(one, fault, "en") for one, fault in faults if fault is not None]
        errors = [
            str(malformed_identifier(one, fault)) for one, fault in faults if fault is not None
        ]
        return {"items": items, "malformed": entries}, errors

    result, errors = context.run_async(read())
    output.emit(
        result,
        json=json,
        human=lambda: Text("\n\n".join(map(_card, result["items"]))),
    )
    for error in errors:
        output.note(error)
    if errors:
        raise typer.Exit(UsageError.exit_code)


def _check_file(
    settings: Settings, source: Path, out: Path | None, column: str | None, *, json: bool
) -> None:
    """Check a list of customers; the result appears under its name only when it is complete."""
    from hasat.sources.gib.check.customers import check_customers
    from hasat.tables import format_of_name, replacing_file

    target_format = format_of_name(source.name if out is None else out.name)
    if not source.is_file():
        raise UsageError(msg("There is no file {path}.", path=str(source)))
    if out is None:
        suggested = source.with_name(f"{source.stem}-checked{source.suffix}")
        raise UsageError(
            msg("There is no place for the result."),
            remedy=msg("Add --out {path}.", path=suggested),
        )
    if out.exists() and out.samefile(source):
        raise UsageError(
            msg("{path} would overwrite itself.", path=str(source)),
            remedy=msg("Give --out another name."),
        )

    async def perform() -> "CheckedCustomers":
        async with open_existing_store(settings) as store:
            with (
                output.progress_bar("gib check") as on_progress,
                replacing_file(out) as target,
            ):
                return await check_customers(
                    store,
                    source,
                    target,
                    target_format,
                    column=column,
                    language=language_of_environment(os.environ),
                    on_progress=on_progress,
                )

    done = context.run_async(perform())
    output.emit(
        {"out": str(out), **done.as_json()}, json=json, human=lambda: Text(_summary(done, out))
    )


def _summary(done: "CheckedCustomers", out: Path) -> str:
    counts = done.counts
    where = f"column {done.column}" + (f" of sheet {done.sheet}" if done.sheet else "")
    lines = [
        f"{counts.rows:,} records checked ({where}), written to {out}",
        f"  e-Fatura   {counts.einvoice:,}",
        f"  e-Arşiv    {counts.not_registered:,}",
        f"  malformed  {counts.malformed:,}",
        f"  empty      {counts.empty:,}",
    ]
    if done.other_sheets:
        lines.append(f"  not read   {', '.join(done.other_sheets)}")
    return "\n".join(lines)


def _card(answer: dict[str, Any]) -> str:
    """Return an answer as text."""
    checksum = "valid" if answer["valid"] else "invalid"
    lines = [
        f"{answer['identifier']}: {answer['invoiceKind']}",
        f"  title      {answer['title'] or '-'}",
        f"  number     {answer['kind'] or 'as in the list'}, checksum {checksum}",
    ]
    for label, one in (("e-Fatura", answer["einvoice"]), ("e-İrsaliye", answer["edespatch"])):
        if one["registered"]:
            lines.append(f"  {label:<10} registered since {one['since'] or '-'}")
            lines.append(f"             send to {one['sendTo'] or '- (no receiver alias)'}")
            lines += [f"             or to   {alias['alias']}" for alias in one["aliases"][1:]]
        else:
            lines.append(f"  {label:<10} not registered")
    lines.append(f"  as of      {answer['version']['committedAt']}")
    return "\n".join(lines)
