"""HTTP routes of the parcels: OGC API Features, and shorter paths to the same documents."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from hasat.errors import NotFoundError, UsageError
from hasat.feed.encoding import record_digest
from hasat.http.routes import (
    ReadStoreDep,
    StorableText,
    StoreDep,
    conditional_json_response,
    declare_responses,
    dumps,
    json_response,
)
from hasat.messages import msg
from hasat.sources.tkgm import ogc
from hasat.sources.tkgm.density import Cell, ScanSummary, list_scans, parcel_density, scan_outlines
from hasat.sources.tkgm.queries import load_extent, load_item, load_page
from hasat.sources.tkgm.selection import PARAMETERS, Box, parse_box, parse_selection
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store

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
    "/collections/{collection}/items",
    summary="Parcels by box, point and time",
    response_class=Response,
    responses=declare_responses(_ITEMS, UsageError, NotFoundError, media=ogc.GEOJSON),
    openapi_extra=_SELECTION,
)
async def items(
    collection: str, request: Request, store: ReadStoreDep, documents: DocumentsDep
) -> Response:
    """Pages in the order of keys; the link `next` leads to the next page.

    A parcel matches a box or point that its outline touches, not only its bounding box.
    """
    _check_collection(collection)
    return await _items(request, store, documents)


@router.get(
    "/collections/{collection}/items/{key:path}",
    summary="One parcel",
    response_class=Response,
    responses=declare_responses(ogc.EXAMPLE_FEATURE, UsageError, NotFoundError, media=ogc.GEOJSON),
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
async def scan_parcels(scan: Annotated[int, Path(ge=1, le=2**62)], store: StoreDep) -> Response:
    """The latest 5,000 outlines, including those not yet published."""
    return json_response(ogc.outlines(await scan_outlines(store, scan)), media=ogc.GEOJSON)


@router.get(
    "/{mahalle_id:int}/{ada_no}/{parsel_no}",
    summary="One parcel by its numbers",
    response_class=Response,
    responses=declare_responses(ogc.EXAMPLE_FEATURE, UsageError, NotFoundError, media=ogc.GEOJSON),
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
    page = await load_page(store, parse_selection(params))
    return json_response(documents.items(page, params), media=ogc.GEOJSON)


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
    etag = record_digest(feature.encode()).hex()
    return conditional_json_response(request, documents.item(key, feature), etag, media=ogc.GEOJSON)
