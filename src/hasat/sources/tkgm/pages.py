"""Parcels: scanned areas and their parcels, the estimate of a scan, and starting one."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from shapely import Polygon
from shapely.geometry import mapping, shape

from hasat.budget import read_quotas
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run, list_runs
from hasat.messages import template
from hasat.pages import Action, NavigationEntry, Page, PageContext, PageRequest, SourcePages
from hasat.pages.summaries import RunSummary, summarize_quota, summarize_run
from hasat.sources.tkgm.geometry import parse_drawn_area
from hasat.sources.tkgm.queries import (
    CostEstimate,
    Extent,
    ScanSummary,
    estimate_cost,
    list_scans,
    load_extent,
    load_page,
)
from hasat.sources.tkgm.selection import Box, Selection
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


@dataclass(frozen=True)
class Estimate:
    """The cost of scanning an area that was drawn or typed."""

    text: str
    outline: Mapping[str, Any]
    cost: CostEstimate
    left_today: int | None


@dataclass(frozen=True)
class Parcels:
    """The data of the page."""

    extent: Extent
    bounds: Box | None
    """The first view of the map: the requested area, else the latest scan and its neighbours."""
    everything: Box | None
    """The box of all scans of the table, else of all parcels."""
    planned: Estimate | None
    can_scan: bool
    run: RunSummary | None
    scans: Sequence[ScanRow]
    parcels: Sequence[ParcelRow]
    matched: int
    after: str | None
    base_map: str | None
    base_map_credit: str


async def parcels(request: PageRequest) -> Parcels:
    """Load the scans, the parcels and the estimate of the requested area."""
    context, store = request.context, request.store
    text = _area_text(request)
    area = parse_drawn_area(text, _max_km2(context)) if text else None
    box = None if area is None else Box(*area.bounds)
    run = await _run(request)
    is_shown_above = run is not None and run.status == "running"
    shown = [_scan_row(one, is_shown_above) for one in await list_scans(store, _MAX_SCANS)]
    boxes = [one.box for one in shown]
    known = await load_extent(store, bounds=not boxes)
    page = await load_page(store, Selection(box, limit=_PAGE_SIZE, after=request.text("after")))
    return Parcels(
        extent=known,
        bounds=box or (_neighbourhood(boxes) if boxes else known.box),
        everything=_around(boxes) if boxes else known.box,
        planned=None if area is None else await _estimate(context, text, area),
        can_scan=SCAN in context.catalogue.jobs,
        run=run,
        scans=shown,
        parcels=[_row(json.loads(one)) for one in page.features],
        matched=page.matched,
        after=page.after,
        base_map=context.settings.serve.base_map,
        base_map_credit=context.settings.serve.base_map_credit,
    )


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
    )


def _neighbourhood(boxes: Sequence[Box]) -> Box:
    """Return the box around the first box and all that touch it, directly or through others."""
    area, *others = boxes
    while near := [one for one in others if area.polygon.intersects(one.polygon)]:
        area = _around([area, *near])
        others = [one for one in others if one not in near]
    return area


def _around(boxes: Sequence[Box]) -> Box:
    west, south, east, north = zip(*boxes, strict=True)
    return Box(min(west), min(south), max(east), max(north))


async def _run(request: PageRequest) -> RunSummary | None:
    """Return the requested run, else an unfinished scan."""
    number = request.number("run")
    if number is None:
        found = await list_runs(request.store, job=SCAN, unfinished=True, limit=1)
    else:
        found = [await get_run(request.store, number)]
    return summarize_run(found[0], await request.store.now()) if found else None


async def start_scan(request: PageRequest) -> str:
    """Queue a scan of the area."""
    text = _area_text(request)
    params = {"area": mapping(parse_drawn_area(text, _max_km2(request.context)))}
    run = await queue_run(request.store, request.context.catalogue, SCAN, params)
    return f"/parcels?{urlencode({'area': text, 'run': run.id})}"


def _max_km2(context: PageContext) -> float:
    return context.settings.section(TkgmSettings).max_area_km2


def _area_text(request: PageRequest) -> str:
    # An area may have many corners, so it may be longer than other values.
    return " ".join(request.values.get("area", "")[:_MAX_AREA_LENGTH].split())


async def _estimate(context: PageContext, text: str, area: Polygon) -> Estimate:
    budgets = await read_quotas(context.store, SOURCE, outcomes=False)
    # Endpoints are unknown before the first request.
    left = next((summarize_quota(one).remaining for one in budgets if one.endpoints), None)
    return Estimate(text, mapping(area), await estimate_cost(context.store, area), left)


def _row(feature: Mapping[str, Any]) -> ParcelRow:
    properties = feature["properties"]
    names = (properties.get(name) for name in ("mahalleAd", "ilceAd", "ilAd"))
    area = properties.get("alan")
    return ParcelRow(
        feature["id"],
        ", ".join(str(name) for name in names if name),
        str(properties.get("nitelik") or ""),
        area if isinstance(area, int | float) else None,
        datetime.fromisoformat(properties["fetchedAt"]),
    )


PAGES = SourcePages(
    (Page("/parcels", "parcels", parcels, "parcels", datasets=("parcels",)),),
    files("hasat.sources.tkgm") / "templates",
    (NavigationEntry("parcels", template("Parcels"), "/parcels", order=60),),
    (Action("/parcels/scan", "run.queue", start_scan),),
    files("hasat.sources.tkgm") / "static",
    labels={
        "quality": {
            "fast": template("Fast"),
            "standard": template("Standard"),
            "thorough": template("Thorough"),
        },
    },
)
