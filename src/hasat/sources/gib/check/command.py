"""The command `hasat gib check`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hasat.console import context, output
from hasat.console.runtime import open_existing_store
from hasat.errors import UsageError
from hasat.messages import join, language_of_environment, msg
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
    where = msg("column {column}", column=done.column)
    if done.sheet:
        where = msg("column {column} of sheet {sheet}", column=done.column, sheet=done.sheet)
    first = msg(
        "{count:,} records checked ({where}), written to {file}",
        count=counts.rows,
        where=where,
        file=out,
    )
    rows: list[tuple[str, str]] = [
        ("e-Fatura", output.number(counts.einvoice)),
        ("e-Arşiv", output.number(counts.not_registered)),
        (msg("malformed"), output.number(counts.malformed)),
        (msg("empty"), output.number(counts.empty)),
    ]
    if done.other_sheets:
        rows.append((msg("not read"), ", ".join(done.other_sheets)))
    return "\n".join([output.shown(first), *output.fields(rows)])


def _card(answer: dict[str, Any]) -> str:
    """Return an answer as text."""
    number = [answer["kind"] or msg("as in the list"), checksum_text(answer["valid"])]
    rows: list[tuple[str, str]] = [
        (msg("title"), answer["title"] or "-"),
        (msg("number"), join(number, ", ")),
    ]
    for label, one in (("e-Fatura", answer["einvoice"]), ("e-İrsaliye", answer["edespatch"])):
        if not one["registered"]:
            rows.append((label, msg("not registered")))
            continue
        rows.append((label, msg("registered since {time}", time=one["since"] or "-")))
        alias = one["sendTo"] or msg("- (no receiver alias)")
        rows.append(("", msg("send to {alias}", alias=alias)))
        others = (alias["alias"] for alias in one["aliases"][1:])
        rows += [("", msg("or to   {alias}", alias=other)) for other in others]
    rows.append((msg("as of"), answer["version"]["committedAt"]))
    title = f"{answer['identifier']}: {answer['invoiceKind']}"
    return "\n".join([title, *output.fields(rows)])


def checksum_text(valid: bool) -> str:
    """Return whether the checksum of an identifier is right."""
    return msg("checksum valid") if valid else msg("checksum invalid")
