"""`hasat tkgm list`: the parcels of a table."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hasat.console import context, output
from hasat.console.runtime import open_migrated_store
from hasat.errors import UsageError
from hasat.messages import join, language_of_environment, msg
from hasat.sources.tkgm.settings import TkgmSettings

if TYPE_CHECKING:
    from hasat.sources.tkgm.lists.fetch import ListResult


def list_parcels(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="A .csv, .tsv or .xlsx file with headings.", metavar="FILE")
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File for the result: .xlsx .csv .gpkg .geojson .fgb .parquet .shp .kml .kmz .dxf",
        ),
    ],
    workers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The workers.json of your endpoints (tkgm.workers_file)."
        ),
    ] = None,
    crs: Annotated[
        str | None, typer.Option(help="Coordinate reference system of the outlines, as in export.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Send a request even if a recent response is stored.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Find the parcels of a table, by their numbers or by points.

    Headings: il, ilçe, mahalle (or mahalleId), ada and parsel; or lat and lon (enlem, boylam).
    Other columns stay. The note of a row says why it has no parcel. Exits 5 when the day's quota
    is used up; the same command then resumes. Examples:
    `hasat tkgm list parseller.xlsx --out sonuc.xlsx` ·
    `hasat tkgm list points.csv --out parcels.gpkg`
    """
    from hasat.sources.tkgm.export import ExportOptions, check_crs
    from hasat.sources.tkgm.lists.fetch import ListFetch, list_id
    from hasat.sources.tkgm.lists.files import check_result_file, write_result
    from hasat.sources.tkgm.lists.rows import read_list
    from hasat.sources.tkgm.registry.client import open_registry

    settings = context.get_settings(ctx)
    options = ExportOptions(None if crs is None else check_crs(crs))
    check_result_file(out, options)
    if not file.is_file():
        raise UsageError(msg("There is no file {path}.", path=file))
    if out.exists() and out.samefile(file):
        raise UsageError(
            msg("{path} would overwrite itself.", path=file),
            remedy=msg("Give --out another name."),
        )
    endpoints = workers or settings.section(TkgmSettings).workers_file
    if endpoints is None:
        raise UsageError(
            msg("No endpoints configured."),
            remedy=msg("Name your workers.json with --workers or tkgm.workers_file."),
        )
    source = read_list(file)
    mask = context.umask_for(ctx, out)

    async def work() -> "ListResult":
        async with (
            open_migrated_store(settings) as store,
            open_registry(store, settings, endpoints) as registry,
        ):
            with output.progress_bar("tkgm list") as on_progress:
                fetch = ListFetch(
                    store, settings, registry, source, list_id(file), fresh, on_progress
                )
                return await fetch.run()

    result = context.run_async(work())
    with context.umask(mask):
        missing = write_result(result, out, options, language_of_environment(os.environ))
    document: dict[str, Any] = {
        "file": str(out),
        "rows": len(result.results),
        **result.counts,
        "missingFile": None if missing is None else str(missing),
        "message": None if result.stopped is None else str(result.stopped),
    }
    output.emit(document, json=json, human=lambda: _render(document))
    if result.stopped is not None:
        raise typer.Exit(result.stopped.exit_code)


def _render(document: dict[str, Any]) -> Text:
    lines = [
        msg(
            "{found:,} of {rows:,} rows have a parcel; {missing:,} have none, {unanswered:,} got "
            "no response.",
            found=document["found"],
            rows=document["rows"],
            missing=document["notFound"],
            unanswered=document["unanswered"],
        ),
        msg("The result is in {file}.", file=document["file"]),
    ]
    if file := document["missingFile"]:
        lines.append(msg("The rows without a parcel are in {file}.", file=file))
    if document["message"]:
        lines.append(join([document["message"], msg("The same command resumes.")]))
    return output.text(lines)
