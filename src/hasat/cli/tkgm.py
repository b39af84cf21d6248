"""`hasat tkgm`: parcels of the land registry."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from hasat.cli import manners, tkgm_endpoint, tkgm_places, tkgm_workers
from hasat.cli.house import acting, archive_without_workers, in_house, open_house
from hasat.cli.tkgm_places import area_of, mahalle_id
from hasat.errors import NotFoundError, UsageError
from hasat.messages import msg
from hasat.settings import Settings

if TYPE_CHECKING:
    from hasat.sources.tkgm.export import Fetched
    from hasat.sources.tkgm.registry.client import Registry
    from hasat.store import Store

app = typer.Typer(no_args_is_help=True, help="Cadastral parcels of the land registry.")
app.command()(tkgm_endpoint.endpoint)
app.command()(tkgm_places.places)
app.command()(tkgm_workers.workers)

WorkersFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The workers.json of your endpoints (tkgm.workers_file)."),
]
FreshFlag = Annotated[
    bool, typer.Option("--fresh", help="Ask the registry, whatever it said lately.")
]
OutFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where to write what was found: .geojson .gpkg .fgb .parquet .shp .kml .kmz .dxf .csv",
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
    ada: Annotated[str | None, typer.Option(help="The block's number; 0 in villages.")] = None,
    parsel: Annotated[str | None, typer.Option(help="The parcel's number.")] = None,
    workers: WorkersFlag = None,
    fresh: FreshFlag = False,
    json: manners.JsonFlag = False,
) -> None:
    """The parcel at a point, or the one of a number.

    What was told lately (tkgm.parcel_age, tkgm.not_found_age) is not asked again; fetchedAt says
    when it was told. Exits 1 when there is no parcel. Examples: `hasat tkgm parcel 39.9 32.85` ·
    `hasat tkgm parcel --mahalle 1162 --ada 2705 --parsel 15` ·
    `hasat tkgm parcel --mahalle "Ankara/Çankaya/Remzi Oğuz Arık" --ada 2705 --parsel 15`
    """
    settings = manners.settings_of(ctx)

    async def ask() -> dict[str, Any]:
        from hasat.fetch import RequestContext
        from hasat.sources.tkgm.registry.lookup import Lookup, point_at
        from hasat.sources.tkgm.registry.wire import Number

        async with _registry(settings, workers) as (store, registry):
            lookup = Lookup(store, settings, registry, RequestContext("daily", "tkgm_parcel"))
            await lookup.forget()
            if lat is not None and lon is not None:
                known = await lookup.at(point_at(lat, lon), fresh=fresh)
            elif mahalle is not None and ada is not None and parsel is not None:
                number = Number(await mahalle_id(store, settings, mahalle), ada, parsel)
                known = await lookup.numbered(number, fresh=fresh)
            else:
                raise UsageError(
                    msg("A parcel is named by a point or by its number."),
                    remedy=msg("Give LAT and LON, or --mahalle, --ada and --parsel."),
                )
        found = known.dated()
        if found is None:
            raise NotFoundError(
                msg("There is no parcel there: a road, a stream or public land."),
                remedy=msg(
                    "So it was told at {fetched_at:%Y-%m-%d %H:%M:%S %Z}; --fresh asks anew.",
                    fetched_at=known.fetched_at,
                ),
            )
        return found

    feature = manners.run_async(ask())
    manners.emit(feature, json=json, human=lambda: _told_parcel(feature))


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
        Literal["fast", "standard", "thorough"], typer.Option(help="How much may be missed.")
    ] = "standard",
    method: Annotated[
        Literal["coverage", "grid"], typer.Option(help="By coverage, or a plain grid with pruning.")
    ] = "coverage",
    step: Annotated[
        float, typer.Option(min=1, max=1000, help="Metres between the grid's points.")
    ] = 20.0,
    max_queries: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Stop after so many questions.")
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Ask a small sample, say what the rest costs, stop.")
    ] = False,
    unknown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write what is still unknown."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A picture of the result: .png .jpg .webp")
    ] = None,
    removals: Annotated[
        Literal["hold", "accept", "reject"],
        typer.Option(help="When many parcels known before seem to be gone."),
    ] = "hold",
    json: manners.JsonFlag = False,
) -> None:
    """Find all parcels of an area, within the budgets of your endpoints.

    Exits 0 when the area is complete at the quality asked for, 5 when the day's quota ended first
    and 1 when --max-queries did: the same command goes on where it was. Once complete, the same
    command looks what has changed since.

    Examples: `hasat tkgm scan area.kml --workers workers.json --out parcels.gpkg` ·
    `hasat tkgm scan 32.84,39.89,32.86,39.91 --quality fast --estimate` ·
    `hasat tkgm scan "Ankara/Çankaya/Kızılay"`
    """
    from hasat.cli.tkgm_scan import Files, run_scan, told_scan
    from hasat.sources.tkgm.scan.scan_request import Wish

    settings = manners.settings_of(ctx)
    wish = Wish(area_of(settings, area), quality, method, step, max_queries)
    files = Files(out, unknown, picture, manners.umask_for(ctx, out, unknown, picture))
    files.check()

    async def work() -> tuple[dict[str, Any], int]:
        async with _registry(settings, workers) as (store, registry):
            scanning = acting(
                "scan.start",
                area,
                lambda store: run_scan(
                    store, registry, wish, files, removals, only_estimate=estimate
                ),
                takes_long=True,
                removals=removals,
                estimate=estimate,
            )
            done = await scanning(store)
            await archive_without_workers(store, settings)
            return done

    result, code = manners.run_async(work())
    manners.emit(result, json=json, human=lambda: told_scan(result))
    raise typer.Exit(code)


@app.command()
def export(
    ctx: typer.Context,
    out: Annotated[Path, typer.Argument(help="The file; its ending names the form.")],
    area: Annotated[
        str | None, typer.Option(help="Only parcels of this area: a file, a box or a place.")
    ] = None,
    turkish: Annotated[
        bool, typer.Option("--turkish", help="CSV for Excel in Turkey: ; decimal commas, BOM.")
    ] = False,
    json: manners.JsonFlag = False,
) -> None:
    """Write the parcels that are known to a file; asks no upstream.

    Examples: `hasat tkgm export parcels.gpkg` · `hasat tkgm export p.csv --turkish`
    """
    settings = manners.settings_of(ctx)
    ground = None if area is None else area_of(settings, area)

    mask = manners.umask_for(ctx, out)

    async def work(store: "Store") -> int:
        from hasat.sources.tkgm.queries import known_parcels

        parcels = await known_parcels(store, ground)
        with manners.umask(mask):
            return _write(parcels, out, turkish=turkish)

    count = in_house(settings, work)
    manners.emit(
        {"file": str(out), "parcels": count},
        json=json,
        human=lambda: f"{count:,} parcels are in {out}.",
    )


def _write(parcels: "list[Fetched]", out: Path, *, turkish: bool) -> int:
    from hasat.sources.tkgm.export import export as write

    return write(parcels, out, turkish=turkish)


@asynccontextmanager
async def _registry(
    settings: Settings, workers: Path | None
) -> "AsyncIterator[tuple[Store, Registry]]":
    from hasat.sources.tkgm.registry.client import registry

    file = workers or settings.tkgm.workers_file
    if file is None:
        raise UsageError(
            msg("There are no endpoints to ask."),
            remedy=msg("Name your workers.json with --workers or tkgm.workers_file."),
        )
    async with open_house(settings) as store, registry(store, settings, file) as found:
        yield store, found


def _told_parcel(feature: dict[str, Any]) -> Text:
    told = feature["properties"]
    where = " / ".join(
        str(told[name]) for name in ("ilAd", "ilceAd", "mahalleAd") if told.get(name)
    )
    area = told.get("alan")
    lines = [f"{told.get('adaNo')}/{told.get('parselNo')}  {where}"]
    lines.append(f"{told.get('nitelik') or ''}  {area if area is not None else '?'} m²".strip())
    lines.append(f"told at {told['fetchedAt'][:19].replace('T', ' ')} UTC")
    return Text("\n".join(lines))
