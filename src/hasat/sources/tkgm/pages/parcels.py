"""Data and forms of the parcels page: search, estimate, scans and parcels."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any
from urllib.parse import urlencode

from shapely.geometry import mapping, shape

from hasat.budget import read_quotas
from hasat.errors import HasatError, UsageError
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run, list_runs
from hasat.messages import msg
from hasat.pages import PageContext, PageRequest
from hasat.pages.summaries import RunSummary, summarize_quota, summarize_run
from hasat.sources.tkgm.areas.planned import PlannedArea, drawn, find_area, save_area
from hasat.sources.tkgm.areas.search import SearchResult, around, search
from hasat.sources.tkgm.areas.uploads import read_upload
from hasat.sources.tkgm.features import StoredParcel, unify_names
from hasat.sources.tkgm.geometry import check_in_turkey, check_size
from hasat.sources.tkgm.queries import (
    CostEstimate,
    Extent,
    ScanSummary,
    estimate_cost,
    list_scans,
    load_extent,
    load_page,
)
from hasat.sources.tkgm.scan.records import delete_scan
from hasat.sources.tkgm.selection import FILES, Box, Selection, parse_box
from hasat.sources.tkgm.settings import TkgmSettings
from hasat.sources.tkgm.source import NAME as SCAN
from hasat.sources.tkgm.source import SOURCE

_PAGE_SIZE = 20
_MAX_SCANS = 20
_MAX_AREA_LENGTH = 20_000


@dataclass(frozen=True)
class ParcelRow:
    """One parcel of the table."""

    key: str
    number: str
    """Ada and parsel, as people name a parcel of the place."""
    place: str
    use: str
    area: float | None
    fetched_at: datetime


@dataclass(frozen=True)
class ScanRow:
    """One scan of the table, with the bounding box of its area.

    `requests` and `found` are None while the page shows the progress of the scan's run: the run
    counts in rounds, so that the two numbers would differ.
    """

    id: int
    box: Box
    quality: str
    began_at: datetime
    finished_at: datetime | None
    requests: int | None
    found: int | None
    at_least: float | None
    missing_numbers: int | None
    running: bool


@dataclass(frozen=True)
class Estimate:
    """The cost of scanning an area that was drawn, typed, uploaded or named."""

    text: str
    address: Mapping[str, str]
    outline: Mapping[str, Any]
    cost: CostEstimate
    left_today: int | None


@dataclass(frozen=True)
class Problem:
    """Why the requested area cannot be used."""

    status: int
    detail: str
    remedy: str | None


@dataclass(frozen=True)
class Parcels:
    """The data of the page."""

    extent: Extent
    bounds: Box | None
    """The first view of the map: a search result, the requested area, else the latest scan and its
    neighbours."""
    everything: Box | None
    """The box of all scans of the table, else of all parcels."""
    chosen: str
    """The key of the parcel whose details the map shows first."""
    area: str
    """The area as it was typed, also if it is wrong."""
    problem: Problem | None
    planned: Estimate | None
    query: str
    results: Sequence[SearchResult]
    can_scan: bool
    run: RunSummary | None
    scans: Sequence[ScanRow]
    parcels: Sequence[ParcelRow]
    matched: int
    after: str | None
    base_map: str | None
    base_map_credit: str
    formats: Sequence[str] = FILES


async def parcels(request: PageRequest) -> Parcels:
    """Load the scans, the parcels, the results of a search and the estimate of an area."""
    context, store = request.context, request.store
    area, problem = await _requested_area(request)
    box = None if area is None else Box(*area.outline.bounds)
    run = await _run(request)
    is_shown_above = run is not None and run.status == "running"
    shown = [_scan_row(one, is_shown_above) for one in await list_scans(store, _MAX_SCANS)]
    boxes = [one.box for one in shown]
    known = await load_extent(store, bounds=not boxes)
    query = request.text("q")
    results = await search(store, query) if query else []
    page = await load_page(store, Selection(box, limit=_PAGE_SIZE, after=request.text("after")))
    shown_first = _first_view(request, results) or box
    return Parcels(
        extent=known,
        bounds=shown_first or (_neighbourhood(boxes) if boxes else known.box),
        everything=around(boxes) if boxes else known.box,
        chosen=request.text("parcel") or _only_parcel(results),
        area=_area_text(request) if area is None else area.text,
        problem=problem,
        planned=None if area is None else await _estimate(context, area),
        query=query,
        results=results,
        can_scan=SCAN in context.catalogue.jobs,
        run=run,
        scans=shown,
        parcels=_rows(page.features),
        matched=page.matched,
        after=page.after,
        base_map=context.settings.serve.base_map,
        base_map_credit=context.settings.serve.base_map_credit,
    )


async def _requested_area(request: PageRequest) -> tuple[PlannedArea | None, Problem | None]:
    """Return the area of the request, or why it has none that can be used."""
    try:
        found = await find_area(
            request.store,
            request.context.settings,
            text=_area_text(request),
            file=request.text("file"),
            may_fetch=request.may_operate,
        )
    except HasatError as error:
        return None, Problem(error.status, error.message, error.remedy)
    return found, None


def _first_view(request: PageRequest, results: Sequence[SearchResult]) -> Box | None:
    """Return the box of the result that was chosen, or of all results."""
    if at := request.text("at"):
        return parse_box(at)
    boxes = [one.box for one in results if one.box is not None]
    return around(boxes) if boxes else None


def _only_parcel(results: Sequence[SearchResult]) -> str:
    """Return the key of a result that is the only one, if it is a parcel."""
    return (results[0].key or "") if len(results) == 1 else ""


def _scan_row(scan: ScanSummary, is_shown_above: bool) -> ScanRow:
    left_out = is_shown_above and scan.finished_at is None
    return ScanRow(
        scan.id,
        Box(*shape(scan.area).bounds),
        str(scan.method.get("quality", scan.method.get("method", ""))),
        scan.began_at,
        scan.finished_at,
        None if left_out else scan.queries,
        None if left_out else scan.found,
        # Rounded down: a claim must not grow by its rounding.
        None if scan.at_least is None else math.floor(scan.at_least * 1000) / 10,
        scan.missing_numbers,
        left_out,
    )


def _neighbourhood(boxes: Sequence[Box]) -> Box:
    """Return the box around the first box and all that touch it, directly or through others."""
    area, *others = boxes
    while near := [one for one in others if area.polygon.intersects(one.polygon)]:
        area = around([area, *near])
        others = [one for one in others if one not in near]
    return area


async def _run(request: PageRequest) -> RunSummary | None:
    """Return the requested run, else an unfinished scan."""
    number = request.number("run")
    if number is None:
        found = await list_runs(request.store, job=SCAN, unfinished=True, limit=1)
    else:
        found = [await get_run(request.store, number)]
    return summarize_run(found[0], await request.store.now()) if found else None


async def start_scan(request: PageRequest) -> str:
    """Queue a scan of the area, or with `estimate` only its sample."""
    area, problem = await _requested_area(request)
    if area is None or problem is not None:
        # The page shows what is wrong, next to what was typed.
        return f"/parcels?{urlencode({'area': _area_text(request)})}"
    params: dict[str, Any] = {"area": mapping(area.outline)}
    if request.text("estimate"):
        params["estimate"] = True
    if request.text("yes"):
        params["yes"] = True
    run = await queue_run(request.store, request.context.catalogue, SCAN, params)
    return f"/parcels?{urlencode({**area.address, 'run': run.id})}"


async def upload_area(request: PageRequest) -> str:
    """Store the area of a file and show its estimate."""
    file = request.files.get("file")
    if file is None or not file.name:
        raise UsageError(
            msg("No file was chosen."), remedy=msg("Choose a file with the area and send it again.")
        )
    outline = await asyncio.to_thread(read_upload, PurePath(file.name).name, file.content)
    check_in_turkey(outline)
    check_size(outline, request.context.settings.section(TkgmSettings).max_area_km2)
    area = await save_area(request.store, PurePath(file.name).name, outline)
    return f"/parcels?{urlencode(area.address)}"


async def remove_scan(request: PageRequest) -> str:
    """Delete a scan."""
    number = request.number("scan")
    if number is None:
        raise UsageError(msg("No scan is named."))
    await delete_scan(request.store, number)
    return "/parcels"


def _area_text(request: PageRequest) -> str:
    # An area may have many corners, so it may be longer than other values.
    return " ".join(request.values.get("area", "").replace("\0", " ")[:_MAX_AREA_LENGTH].split())


async def _estimate(context: PageContext, area: PlannedArea) -> Estimate:
    budgets = await read_quotas(context.store, SOURCE, outcomes=False)
    # Endpoints are unknown before the first request.
    left = next((summarize_quota(one).remaining for one in budgets if one.endpoints), None)
    cost = await estimate_cost(context.store, area.outline)
    return Estimate(area.text, area.address, mapping(drawn(area.outline)), cost, left)


def _rows(features: Sequence[str]) -> list[ParcelRow]:
    """Return rows of the table, with one spelling of each place."""
    parsed = [json.loads(one) for one in features]
    stored = [
        StoredParcel(one, datetime.fromisoformat(one["properties"]["fetchedAt"])) for one in parsed
    ]
    return [_row(one.feature or {}) for one in unify_names(stored)]


def _row(feature: Mapping[str, Any]) -> ParcelRow:
    properties = feature["properties"]
    names = (properties.get(name) for name in ("mahalleAd", "ilceAd", "ilAd"))
    area = properties.get("alan")
    return ParcelRow(
        feature["id"],
        "/".join(str(properties[name]) for name in ("adaNo", "parselNo") if properties.get(name)),
        ", ".join(str(name) for name in names if name),
        str(properties.get("nitelik") or ""),
        area if isinstance(area, int | float) else None,
        datetime.fromisoformat(properties["fetchedAt"]),
    )
