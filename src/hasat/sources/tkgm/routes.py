"""The parcels' doors: OGC API Features, and the short ways of the house to the same answers."""

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
from hasat.sources.tkgm.density import Cell, ScanLine, list_scans, parcel_density, scan_outlines
from hasat.sources.tkgm.queries import extent, look, look_up
from hasat.sources.tkgm.selection import PARAMETERS, Box, read_box, read_selection
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store

_EXAMPLES = ogc.Pages("http://127.0.0.1:8000")
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
        ScanLine(
            id=3,
            area=ogc.ground(Box(32.84, 39.89, 32.85, 39.9)),
            method={"method": "coverage", "quality": "standard"},
            began_at=datetime(2026, 11, 2, 6, tzinfo=UTC),
            finished_at=None,
            asked=640,
            found=391,
        )
    ]
)
_TOLD = {
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
_SELECTING: dict[str, Any] = {"parameters": list(PARAMETERS)}


async def _pages(request: Request) -> ogc.Pages:
    return ogc.Pages(str(request.base_url).rstrip("/"))


ThePages = Annotated[ogc.Pages, Depends(_pages)]

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
    openapi_extra=_SELECTING,
)
async def landing(request: Request, store: ReadStoreDep, pages: ThePages) -> Response:
    """The landing page, which QGIS and other programs begin with. With any parameter of
    `/collections/parcels/items`, the parcels themselves."""
    if request.query_params:
        return await _items(request, store, pages)
    return json_response(dumps(pages.landing()))


@router.get(
    "/conformance",
    summary="Which rules of OGC API Features hold here",
    response_class=Response,
    responses=declare_responses(_EXAMPLES.conformance(), UsageError),
)
async def conformance(pages: ThePages) -> Response:
    return json_response(dumps(pages.conformance()))


@router.get(
    "/collections",
    summary="The collections of parcels: there is one",
    response_class=Response,
    responses=declare_responses(_EXAMPLES.collections(ogc.EXAMPLE), UsageError),
)
async def collections(store: ReadStoreDep, pages: ThePages) -> Response:
    return json_response(dumps(pages.collections(await extent(store))))


@router.get(
    "/collections/{collection}",
    summary="The collection of parcels",
    response_class=Response,
    responses=declare_responses(_EXAMPLES.collection(ogc.EXAMPLE), UsageError, NotFoundError),
)
async def one_collection(collection: str, store: ReadStoreDep, pages: ThePages) -> Response:
    _check_collection(collection)
    return json_response(dumps(pages.collection(await extent(store))))


@router.get(
    "/collections/{collection}/items",
    summary="Parcels by box, point and time",
    response_class=Response,
    responses=declare_responses(_ITEMS, UsageError, NotFoundError, media=ogc.GEOJSON),
    openapi_extra=_SELECTING,
)
async def items(
    collection: str, request: Request, store: ReadStoreDep, pages: ThePages
) -> Response:
    """In the order of their keys, page by page; the link `next` is there as long as there is more.

    A parcel belongs to a box or point that its outline touches, not only its bounding box.
    """
    _check_collection(collection)
    return await _items(request, store, pages)


@router.get(
    "/collections/{collection}/items/{key:path}",
    summary="One parcel",
    response_class=Response,
    responses=declare_responses(ogc.EXAMPLE_FEATURE, UsageError, NotFoundError, media=ogc.GEOJSON),
)
async def item(
    collection: str, key: StorableText, request: Request, store: ReadStoreDep, pages: ThePages
) -> Response:
    """By its key: mahalleId/adaNo/parselNo, with the slashes escaped or as they are."""
    _check_collection(collection)
    return await _item(key, request, store, pages)


@router.get(
    "/density",
    summary="How dense the parcels of a box lie",
    response_class=Response,
    responses=declare_responses(_DENSITY, UsageError, media=ogc.GEOJSON),
    openapi_extra={"parameters": [{**PARAMETERS[0], "required": True}]},
)
async def density(request: Request, store: ReadStoreDep) -> Response:
    """Cells of a grid with the number of parcels in each: for maps of more than one can draw."""
    cells = await parcel_density(store, read_box(request.query_params.get("bbox", "")))
    return json_response(dumps(ogc.density(cells)), media=ogc.GEOJSON)


@router.get(
    "/scans",
    summary="The areas that were scanned",
    response_class=Response,
    responses=declare_responses(_SCANS, UsageError, media=ogc.GEOJSON),
)
async def scans(store: StoreDep) -> Response:
    """The latest 200 with their areas, the last one first."""
    return json_response(dumps(ogc.scans(await list_scans(store))), media=ogc.GEOJSON)


@router.get(
    "/scans/{scan}/parcels",
    summary="What a scan was told so far",
    response_class=Response,
    responses=declare_responses(_TOLD, UsageError, media=ogc.GEOJSON),
)
async def told(scan: Annotated[int, Path(ge=1, le=2**62)], store: StoreDep) -> Response:
    """The latest 5,000 outlines, also those that are not published yet."""
    return json_response(ogc.told(await scan_outlines(store, scan)), media=ogc.GEOJSON)


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
    pages: ThePages,
) -> Response:
    """The same as `/collections/parcels/items/{key}`."""
    return await _item(f"{mahalle_id}/{ada_no}/{parsel_no}", request, store, pages)


def _check_collection(name: str) -> None:
    if name != PARCELS.name:
        raise NotFoundError(
            msg("There is no collection {name!r}.", name=name),
            remedy=msg("The only one is {parcels!r}.", parcels=PARCELS.name),
        )


async def _items(request: Request, store: Store, pages: ogc.Pages) -> Response:
    asked = dict(request.query_params)
    page = await look(store, read_selection(asked))
    return json_response(pages.items(page, asked), media=ogc.GEOJSON)


async def _item(key: str, request: Request, store: Store, pages: ogc.Pages) -> Response:
    feature = await look_up(store, key)
    if feature is None:
        raise NotFoundError(
            msg("No parcel {key!r} is known.", key=key),
            remedy=msg(
                "Keys are mahalleId/adaNo/parselNo. Ask the registry for it with `hasat "
                "tkgm parcel`, or scan its area."
            ),
        )
    etag = record_digest(feature.encode()).hex()
    return conditional_json_response(request, pages.item(key, feature), etag, media=ogc.GEOJSON)
