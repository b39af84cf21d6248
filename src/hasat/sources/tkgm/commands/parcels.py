"""`hasat tkgm`: cadastral parcels and places of TKGM."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from hasat.console import context, output
from hasat.console.runtime import (
    archive_without_workers,
    open_migrated_store,
    run_with_store,
    with_audit,
)
from hasat.errors import NotFoundError, UsageError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.commands import buildings, endpoints, lists, scans
from hasat.sources.tkgm.settings import TkgmSettings

if TYPE_CHECKING:
    from hasat.sources.tkgm.geometry import Outline
    from hasat.sources.tkgm.places import PlaceMatch
    from hasat.sources.tkgm.registry.client import RegistryClient
    from hasat.store import Store

_FILES = {".geojson", ".json", ".kml", ".kmz", ".gpkg", ".shp", ".fgb", ".zip", ".gml"}

app = typer.Typer(no_args_is_help=True, help="Cadastral parcels of TKGM.")
app.command()(endpoints.endpoint)
app.command()(endpoints.workers)
app.command("list")(lists.list_parcels)
app.command()(scans.scans)
app.command()(buildings.buildings)

WorkersFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The workers.json of your endpoints (tkgm.workers_file)."),
]
FreshFlag = Annotated[
    bool, typer.Option("--fresh", help="Send a request even if a recent response is stored.")
]
OutFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File for the parcels: .geojson .gpkg .fgb .parquet .shp .zip .kml .kmz .dxf .csv",
    ),
]


@app.command()
def parcel(
    ctx: typer.Context,
    lat: Annotated[float | None, typer.Argument(help="Latitude in degrees.")] = None,
    lon: Annotated[float | None, typer.Argument(help="Longitude in degrees.")] = None,
    mahalle: Annotated[
        str | None, typer.Option(help="The neighbourhood: its id, or province/district/name.")
    ] = None,
    ada: Annotated[str | None, typer.Option(help="The block number; 0 in villages.")] = None,
    parsel: Annotated[str | None, typer.Option(help="The parcel number.")] = None,
    workers: WorkersFlag = None,
    fresh: FreshFlag = False,
    json: output.JsonFlag = False,
) -> None:
    """Show the parcel at a point or with a number.

    Recent responses (tkgm.parcel_age, tkgm.not_found_age) are not requested again; fetchedAt is
    their time. Exits 1 when there is no parcel. Examples: `hasat tkgm parcel 39.9 32.85` ·
    `hasat tkgm parcel --mahalle 1162 --ada 2705 --parsel 15` ·
    `hasat tkgm parcel --mahalle "Ankara/Çankaya/Remzi Oğuz Arık" --ada 2705 --parsel 15`
    """
    settings = context.get_settings(ctx)

    async def fetch() -> dict[str, Any]:
        from hasat.fetch import RequestContext
        from hasat.sources.tkgm.registry.lookup import Lookup, check_number, check_point

        async with _registry(settings, workers) as (store, registry):
            lookup = Lookup(store, settings, registry, RequestContext("daily", "tkgm_parcel"))
            await lookup.delete_expired()
            if lat is not None and lon is not None:
                stored = await lookup.at(check_point(lat, lon), fresh=fresh)
            elif mahalle is not None and ada is not None and parsel is not None:
                number = check_number(await mahalle_id(store, settings, mahalle), ada, parsel)
                stored = await lookup.numbered(number, fresh=fresh)
            else:
                raise UsageError(
                    msg("No parcel is named."),
                    remedy=msg("Give LAT and LON, or --mahalle, --ada and --parsel."),
                )
        found = stored.dated()
        if found is None:
            raise NotFoundError(
                msg("There is no parcel there: a road, a stream or public land."),
                remedy=msg(
                    "Fetched at {fetched_at:%Y-%m-%d %H:%M:%S %Z}; --fresh sends a new request.",
                    fetched_at=stored.fetched_at.astimezone(UTC),
                ),
            )
        return found

    feature = context.run_async(fetch())
    output.emit(feature, json=json, human=lambda: _render_parcel(feature))


@app.command()
def scan(
    ctx: typer.Context,
    area: Annotated[
        str,
        typer.Argument(
            help="A GeoJSON, KML or GeoPackage file, west,south,east,north, or a place such as "
            "Ankara/Çankaya/Kızılay."
        ),
    ],
    workers: WorkersFlag = None,
    out: OutFlag = None,
    quality: Annotated[
        Literal["fast", "standard", "thorough"], typer.Option(help="How complete the result is.")
    ] = "standard",
    method: Annotated[
        Literal["coverage", "grid"], typer.Option(help="By coverage, or a plain grid with pruning.")
    ] = "coverage",
    step: Annotated[
        float, typer.Option(min=1, max=1000, help="Metres between the grid's points.")
    ] = 20.0,
    max_queries: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Stop after this many queries.")
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Query a small sample, print the cost and stop."),
    ] = False,
    unknown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for the areas that are still unknown."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A picture of the result: .png .jpg .webp")
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Scan also more than tkgm.max_area_km2, more than a day's budget, or outside "
            "Turkey.",
        ),
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Find all parcels of an area, within the budgets of your endpoints.

    Exits 0 when the area is complete at the given quality, 5 when the day's quota is used up and 1
    at --max-queries; the same command then resumes the scan. Once complete, the same command
    checks for changes. Exits 4 when many parcels are gone: the guard holds their removal.

    Examples: `hasat tkgm scan area.kml --workers workers.json --out parcels.gpkg` ·
    `hasat tkgm scan 32.84,39.89,32.86,39.91 --quality fast --estimate` ·
    `hasat tkgm scan "Ankara/Çankaya/Kızılay"`
    """
    from hasat.sources.tkgm.commands.scan import Files, render_scan, run_scan
    from hasat.sources.tkgm.geometry import check_grid, check_in_turkey, check_size
    from hasat.sources.tkgm.scan.progress import ScanRequest

    settings = context.get_settings(ctx)
    outline = area_of(settings, area)
    if not yes:
        check_in_turkey(outline)
        check_size(outline, settings.section(TkgmSettings).max_area_km2)
    if method == "grid":
        check_grid(outline, step)
    request = ScanRequest(outline, quality, method, step, max_queries)
    files = Files(out, unknown, picture, context.umask_for(ctx, out, unknown, picture))
    files.check()

    async def work() -> tuple[dict[str, Any], int]:
        async with _registry(settings, workers) as (store, registry):
            scanning = with_audit(
                "scan.start",
                area,
                lambda store: run_scan(
                    store, settings, registry, request, files, yes=yes, only_estimate=estimate
                ),
                takes_long=True,
                estimate=estimate,
            )
            done = await scanning(store)
            await archive_without_workers(store, settings)
            return done

    result, code = context.run_async(work())
    output.emit(result, json=json, human=lambda: render_scan(result))
    raise typer.Exit(code)


@app.command()
def export(
    ctx: typer.Context,
    out: Annotated[Path, typer.Argument(help="The file; its extension names the format.")],
    area: Annotated[
        str | None, typer.Option(help="Only parcels of this area: a file, a box or a place.")
    ] = None,
    turkish: Annotated[
        bool, typer.Option("--turkish", help="CSV for Excel in Turkey: ; decimal commas, BOM.")
    ] = False,
    crs: Annotated[
        str | None,
        typer.Option(
            help="Coordinate reference system, such as EPSG:5255 (TUREF / TM33); WGS 84 if not "
            "given, in DXF the zone of the parcels."
        ),
    ] = None,
    wkt: Annotated[
        bool, typer.Option("--wkt", help="CSV with the outlines in a column `wkt`.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Write the known parcels to a file; sends no request.

    A GeoPackage opens in QGIS coloured by use and labelled. Examples:
    `hasat tkgm export parcels.gpkg` · `hasat tkgm export p.dxf --crs EPSG:5254` ·
    `hasat tkgm export p.csv --turkish --wkt`
    """
    from hasat.sources.tkgm.export import ExportOptions, check_crs, check_extension
    from hasat.sources.tkgm.export import export as write

    settings = context.get_settings(ctx)
    options = ExportOptions(None if crs is None else check_crs(crs), turkish, wkt)
    check_extension(out, options)
    outline = None if area is None else area_of(settings, area)

    mask = context.umask_for(ctx, out)

    async def work(store: "Store") -> int:
        from hasat.sources.tkgm.queries import load_parcels

        parcels = await load_parcels(store, outline)
        with context.umask(mask):
            return write(parcels, out, options)

    count = run_with_store(settings, work)
    output.emit(
        {"file": str(out), "parcels": count},
        json=json,
        human=lambda: msg("{count:,} parcels are in {file}.", count=count, file=out),
    )


@app.command()
def places(
    ctx: typer.Context,
    path: Annotated[
        str | None, typer.Argument(help="A province, or province/district; none for all provinces.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Send a request even if a recent response is stored.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """List the provinces, districts or neighbourhoods of TKGM with their ids.

    The lists come from TKGM (tkgm.registry.url) and are stored for tkgm.lists_age.

    Examples: `hasat tkgm places` · `hasat tkgm places Ankara/Çankaya`
    """
    settings = context.get_settings(ctx)

    async def fetch() -> "list[PlaceMatch]":
        from hasat.sources.tkgm.places import Places

        async with open_migrated_store(settings) as store:
            return await Places(store, settings, fresh=fresh).within(path)

    found = context.run_async(fetch())
    rows: list[dict[str, Any]] = [
        {
            "id": one.place.id,
            "name": one.place.name,
            "kind": one.kind,
            "path": "/".join(one.path),
            "bbox": None if one.place.boundary is None else list(one.place.boundary.bounds),
        }
        for one in found
    ]

    def human() -> RenderableType:
        table = output.table("id", "name", "path")
        for row in rows:
            table.add_row(str(row["id"]), row["name"], row["path"])
        return table

    output.emit(rows, json=json, human=human)


@asynccontextmanager
async def _registry(
    settings: Settings, workers: Path | None
) -> "AsyncIterator[tuple[Store, RegistryClient]]":
    from hasat.sources.tkgm.registry.client import open_registry

    file = workers or settings.section(TkgmSettings).workers_file
    if file is None:
        raise UsageError(
            msg("No endpoints configured."),
            remedy=msg("Name your workers.json with --workers or tkgm.workers_file."),
        )
    async with (
        open_migrated_store(settings) as store,
        open_registry(store, settings, file) as client,
    ):
        yield store, client


def _render_parcel(feature: dict[str, Any]) -> Text:
    properties = feature["properties"]
    where = " / ".join(
        str(properties[name]) for name in ("ilAd", "ilceAd", "mahalleAd") if properties.get(name)
    )
    area = properties.get("alan")
    lines = [
        f"{properties.get('adaNo')}/{properties.get('parselNo')}  {where}",
        f"{properties.get('nitelik') or ''}  {area if area is not None else '?'} m²".strip(),
        msg("fetched at {time} UTC", time=properties["fetchedAt"][:19].replace("T", " ")),
    ]
    return output.text(lines)


def area_of(settings: Settings, text: str) -> "Outline":
    """Return the area of a file, of a box, or of a place by its name."""
    from hasat.sources.tkgm.geometry import read_area

    is_box = "," in text and "/" not in text
    if is_box or Path(text).is_file() or Path(text).suffix.lower() in _FILES:
        return read_area(text)

    async def find() -> "Outline":
        from hasat.sources.tkgm.areas.planned import place_area
        from hasat.sources.tkgm.places import Places

        async with open_migrated_store(settings) as store:
            return await place_area(Places(store, settings), text)

    return context.run_async(find())


async def mahalle_id(store: "Store", settings: Settings, text: str) -> int:
    """Return the id of a neighbourhood, given as a number or by its name."""
    if text.isdecimal():
        return int(text)
    from hasat.sources.tkgm.places import Places

    found = await Places(store, settings).find(text)
    if found.kind != "neighbourhood":
        if found.kind == "province":
            problem = msg("{text!r} is a province, not a neighbourhood.", text=text)
        else:
            problem = msg("{text!r} is a district, not a neighbourhood.", text=text)
        raise UsageError(
            problem,
            remedy=msg(
                "`hasat tkgm places {path!r}` lists what is in it.", path="/".join(found.path)
            ),
        )
    return found.place.id
