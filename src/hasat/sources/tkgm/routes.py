"""HTTP routes of the parcels: OGC API Features, and shorter paths to the same documents."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import IO, Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from shapely.geometry import shape
from starlette.responses import Response, StreamingResponse

from hasat.errors import NotFoundError, UsageError
from hasat.feed.encoding import record_digest
from hasat.http.routes import (
    ReadStoreDep,
    SettingsDep,
    StorableText,
    StoreDep,
    conditional_json_response,
    declare_responses,
    dumps,
    json_response,
    matches_etag,
)
from hasat.messages import msg
from hasat.sources.tkgm import ogc
from hasat.sources.tkgm.areas.planned import find_area
from hasat.sources.tkgm.export import ExportOptions, export, file_extension
from hasat.sources.tkgm.export.tiles import Tile, encode_tile
from hasat.sources.tkgm.features import StoredParcel
from hasat.sources.tkgm.filters.crs import CRS84, check_uri, name_of
from hasat.sources.tkgm.queries import (
    Cell,
    ScanSummary,
    list_scans,
    load_extent,
    load_item,
    load_page,
    load_parcels,
    load_selected,
    load_tile,
    parcel_density,
    scan_outlines,
)
from hasat.sources.tkgm.selection import (
    CRS_PARAMETER,
    FILES,
    PARAMETERS,
    Box,
    Selection,
    parse_box,
    parse_selection,
)
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store
from hasat.text import MAX_EXACT_INTEGER

_EXAMPLES = ogc.Documents("http://127.0.0.1:8000")
_LANDING = _EXAMPLES.landing()
_ITEMS = {
    "type": "FeatureCollection",
    "timeStamp": "2026-11-02T06:05:00Z",
    "numberMatched": 1,
    "numberReturned": 1,
    "links": [],
    "features": [ogc.EXAMPLE_FEATURE],
}
_DENSITY = ogc.density([Cell(Box(32.84, 39.89, 32.85, 39.9), 412)])
_SCANS = ogc.scans(
    [
        ScanSummary(
            id=3,
            area=ogc.box_polygon(Box(32.84, 39.89, 32.85, 39.9)),
            method={"method": "coverage", "quality": "standard"},
            began_at=datetime(2026, 11, 2, 6, tzinfo=UTC),
            finished_at=None,
            queries=640,
            found=391,
        )
    ]
)
_OUTLINES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "id": "147766/3106/258",
            "properties": {},
            "geometry": ogc.EXAMPLE_FEATURE["geometry"],
        }
    ],
}
# Larger selections are in the archives of the dataset.
_MAX_FILE_PARCELS = 200_000
_MEDIA = {
    "gpkg": "application/geopackage+sqlite3",
    "shp": "application/zip",
    "geojson": ogc.GEOJSON,
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "kml": "application/vnd.google-earth.kml+xml",
    "kmz": "application/vnd.google-earth.kmz",
}
_TILE = "application/vnd.mapbox-vector-tile"
_IN_TILES = ("adaNo", "parselNo", "mahalleAd", "nitelik", "alan")
_SELECTION: dict[str, Any] = {"parameters": list(PARAMETERS)}


async def _documents(request: Request) -> ogc.Documents:
    return ogc.Documents(str(request.base_url).rstrip("/"))


DocumentsDep = Annotated[ogc.Documents, Depends(_documents)]

router = APIRouter(prefix=f"/{PARCELS.name}", tags=[PARCELS.name])


def _landing_or_items() -> dict[int | str, dict[str, Any]]:
    declared = declare_responses(_LANDING, UsageError)
    declared[200]["content"][ogc.GEOJSON] = {"example": _ITEMS}
    return declared


@router.get(
    "",
    summary="Parcels as OGC API Features",
    response_class=Response,
    responses=_landing_or_items(),
    openapi_extra=_SELECTION,
)
async def landing(request: Request, store: ReadStoreDep, documents: DocumentsDep) -> Response:
    """The landing page, from which QGIS and other clients start. With any parameter of
    `/collections/parcels/items`, the parcels themselves."""
    if request.query_params:
        return await _items(request, store, documents)
    return json_response(dumps(documents.landing()))


@router.get(
    "/conformance",
    summary="Conformance classes of OGC API Features",
    response_class=Response,
    responses=declare_responses(_EXAMPLES.conformance(), UsageError),
)
async def conformance(documents: DocumentsDep) -> Response:
    return json_response(dumps(documents.conformance()))


@router.get(
    "/collections",
    summary="Collections of parcels",
    response_class=Response,
    responses=declare_responses(_EXAMPLES.collections(ogc.EXAMPLE), UsageError),
)
async def collections(store: ReadStoreDep, documents: DocumentsDep) -> Response:
    return json_response(dumps(documents.collections(await load_extent(store))))


@router.get(
    "/collections/{collection}",
    summary="The collection of parcels",
    response_class=Response,
    responses=declare_responses(_EXAMPLES.collection(ogc.EXAMPLE), UsageError, NotFoundError),
)
async def one_collection(collection: str, store: ReadStoreDep, documents: DocumentsDep) -> Response:
    _check_collection(collection)
    return json_response(dumps(documents.collection(await load_extent(store))))


@router.get(
    "/collections/{collection}/queryables",
    summary="Properties by which parcels can be filtered",
    response_class=Response,
    responses=declare_responses(
        _EXAMPLES.queryables(), UsageError, NotFoundError, media=ogc.SCHEMA
    ),
)
async def queryables(collection: str, documents: DocumentsDep) -> Response:
    _check_collection(collection)
    return json_response(dumps(documents.queryables()), media=ogc.SCHEMA)


@router.get(
    "/collections/{collection}/schema",
    summary="Schema of a parcel, with the type of its outline",
    response_class=Response,
    responses=declare_responses(_EXAMPLES.schema(), UsageError, NotFoundError, media=ogc.SCHEMA),
)
async def schema(collection: str, documents: DocumentsDep) -> Response:
    _check_collection(collection)
    return json_response(dumps(documents.schema()), media=ogc.SCHEMA)


@router.get(
    "/collections/{collection}/items",
    summary="Parcels by box, point, time and properties",
    response_class=Response,
    responses=declare_responses(_ITEMS, UsageError, NotFoundError, media=ogc.GEOJSON),
    openapi_extra=_SELECTION,
)
async def items(
    collection: str, request: Request, store: ReadStoreDep, documents: DocumentsDep
) -> Response:
    """Pages in the order of keys; the link `next` leads to the next page.

    A parcel matches a box or point that its outline touches, not only its bounding box. With `f`
    the response is a file with the whole selection, up to 200,000 parcels.
    """
    _check_collection(collection)
    return await _items(request, store, documents)


@router.get(
    "/collections/{collection}/items/{key:path}",
    summary="One parcel",
    response_class=Response,
    responses=declare_responses(ogc.EXAMPLE_FEATURE, UsageError, NotFoundError, media=ogc.GEOJSON),
    openapi_extra={"parameters": [CRS_PARAMETER]},
)
async def item(
    collection: str,
    key: StorableText,
    request: Request,
    store: ReadStoreDep,
    documents: DocumentsDep,
) -> Response:
    """By key: mahalleId/adaNo/parselNo, with or without escaped slashes."""
    _check_collection(collection)
    return await _item(key, request, store, documents)


@router.get(
    "/tiles/{z:int}/{x:int}/{y:int}.mvt",
    summary="Parcels of a tile of the web map",
    response_class=Response,
    responses=declare_responses("the tile", UsageError, media=_TILE),
)
async def tile(z: int, x: int, y: int, request: Request, store: ReadStoreDep) -> Response:
    """A Mapbox Vector Tile with the layer `parcels`; parcels too small to be seen are left out.

    An empty tile has status 204.
    """
    wanted = Tile(z, x, y)
    rows = await load_tile(store, wanted)
    content = await asyncio.to_thread(_encoded, wanted, rows)
    if not content:
        return Response(status_code=204)
    etag = f'"{record_digest(content).hex()}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if matches_etag(request.headers, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TILE)


def _encoded(wanted: Tile, rows: Sequence[tuple[str, dict[str, Any]]]) -> bytes:
    return encode_tile(
        wanted,
        (
            (shape(body["geometry"]), {"id": key, **_tile_properties(body["properties"])})
            for key, body in rows
            if body["geometry"] is not None
        ),
    )


def _tile_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: properties.get(name) for name in _IN_TILES}


@router.get(
    "/density",
    summary="Density of parcels in a box",
    response_class=Response,
    responses=declare_responses(_DENSITY, UsageError, media=ogc.GEOJSON),
    openapi_extra={"parameters": [{**PARAMETERS[0], "required": True}]},
)
async def density(request: Request, store: ReadStoreDep) -> Response:
    """Cells of a grid with the number of parcels in each, for areas too large to draw parcels."""
    cells = await parcel_density(store, parse_box(request.query_params.get("bbox", "")))
    return json_response(dumps(ogc.density(cells)), media=ogc.GEOJSON)


@router.get(
    "/scans",
    summary="Scanned areas",
    response_class=Response,
    responses=declare_responses(_SCANS, UsageError, media=ogc.GEOJSON),
)
async def scans(store: StoreDep) -> Response:
    """The latest 200 scans with their areas, newest first."""
    return json_response(dumps(ogc.scans(await list_scans(store))), media=ogc.GEOJSON)


@router.get(
    "/scans/{scan}/parcels",
    summary="Parcels found by a scan so far",
    response_class=Response,
    responses=declare_responses(_OUTLINES, UsageError, media=ogc.GEOJSON),
)
async def scan_parcels(
    scan: Annotated[int, Path(ge=1, le=MAX_EXACT_INTEGER)], store: StoreDep
) -> Response:
    """The latest 5,000 outlines, including those not yet published."""
    return json_response(ogc.outlines(await scan_outlines(store, scan)), media=ogc.GEOJSON)


@router.get(
    "/area",
    summary="The parcels of an area as a file",
    response_class=Response,
    responses=declare_responses(_ITEMS, UsageError, NotFoundError, media=ogc.GEOJSON),
)
async def area_file(
    store: ReadStoreDep,
    settings: SettingsDep,
    area: Annotated[
        str | None,
        Query(
            description="A box, corners `lon,lat lon,lat ...`, or the name of a known place.",
            max_length=20_000,
        ),
    ] = None,
    file: Annotated[
        str | None, Query(description="An area that was uploaded to the page Parcels.")
    ] = None,
    f: Annotated[
        str, Query(description="The format.", json_schema_extra={"enum": list(FILES)})
    ] = "geojson",
) -> Response:
    """The stored parcels whose outlines intersect the area; sends no request to the upstream."""
    planned = await find_area(store, settings, text=area or "", file=file or "", may_fetch=False)
    if planned is None:
        raise UsageError(msg("No area is given."), remedy=msg("Add the parameter `area`."))
    if f not in FILES:
        raise UsageError(
            msg("`f` is {text!r}.", text=f),
            remedy=msg("Use one of {formats}.", formats=", ".join(FILES)),
        )
    return await _file_of(await load_parcels(store, planned.outline), f, ExportOptions())


@router.get(
    "/{mahalle_id:int}/{ada_no}/{parsel_no}",
    summary="One parcel by its numbers",
    response_class=Response,
    responses=declare_responses(ogc.EXAMPLE_FEATURE, UsageError, NotFoundError, media=ogc.GEOJSON),
    openapi_extra={"parameters": [CRS_PARAMETER]},
)
async def numbered(
    mahalle_id: int,
    ada_no: StorableText,
    parsel_no: StorableText,
    request: Request,
    store: ReadStoreDep,
    documents: DocumentsDep,
) -> Response:
    """Equal to `/collections/parcels/items/{key}`."""
    return await _item(f"{mahalle_id}/{ada_no}/{parsel_no}", request, store, documents)


def _check_collection(name: str) -> None:
    if name != PARCELS.name:
        raise NotFoundError(
            msg("There is no collection {name!r}.", name=name),
            remedy=msg("The only one is {parcels!r}.", parcels=PARCELS.name),
        )


async def _items(request: Request, store: Store, documents: ogc.Documents) -> Response:
    params = dict(request.query_params)
    selection = parse_selection(params)
    if selection.file is not None:
        return await _file(store, selection, selection.file)
    page = await load_page(store, selection)
    body = await asyncio.to_thread(documents.items, page, params, selection.crs)
    return _in_crs(json_response(body, media=ogc.GEOJSON), selection.crs)


def _in_crs(response: Response, crs: str) -> Response:
    """Name the coordinate reference system of a response, as Part 2 wants it."""
    response.headers["Content-Crs"] = f"<{crs}>"
    return response


async def _file(store: Store, selection: Selection, extension: str) -> Response:
    """Return the whole selection as a file."""
    options = ExportOptions(None if selection.crs == CRS84 else name_of(selection.crs))
    parcels = await load_selected(store, selection, _MAX_FILE_PARCELS)
    return await _file_of(parcels, extension, options)


async def _file_of(
    parcels: Sequence[StoredParcel], extension: str, options: ExportOptions
) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        path = FilePath(folder) / f"{PARCELS.name}.{file_extension(extension)}"
        await asyncio.to_thread(export, parcels, path, options)
        # The open file outlives its name.
        file = path.open("rb")
    headers = {"Content-Disposition": f'attachment; filename="{path.name}"'}
    media = _MEDIA.get(extension, "application/octet-stream")
    return StreamingResponse(_chunks(file), headers=headers, media_type=media)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, 1 << 18):
            yield chunk


async def _item(key: str, request: Request, store: Store, documents: ogc.Documents) -> Response:
    feature = await load_item(store, key)
    if feature is None:
        raise NotFoundError(
            msg("No parcel {key!r} is known.", key=key),
            remedy=msg(
                "Keys are mahalleId/adaNo/parselNo. Fetch it from the registry with `hasat "
                "tkgm parcel`, or scan its area."
            ),
        )
    crs = check_uri(request.query_params.get("crs", CRS84), "crs")
    body = documents.item(key, feature, crs)
    etag = record_digest(f"{crs} {feature}".encode()).hex()
    return _in_crs(conditional_json_response(request, body, etag, media=ogc.GEOJSON), crs)
