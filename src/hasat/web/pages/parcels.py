"""Parcels: areas scanned, what is known of them, what a scan would cost, and starting one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from shapely import Polygon
from shapely.geometry import mapping, shape

from hasat.budget import read_quotas
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run, list_runs
from hasat.sources.tkgm.density import CostEstimate, ScanSummary, estimate_cost, list_scans
from hasat.sources.tkgm.geometry import parse_drawn_area
from hasat.sources.tkgm.queries import Extent, load_extent, load_page
from hasat.sources.tkgm.selection import Box, Selection
from hasat.sources.tkgm.source import SOURCE
from hasat.web.page import Action, Asked, House, Page
from hasat.web.quotas import quota_line
from hasat.web.runlines import RunLine, line_of

SCAN = "tkgm_scan"
_ON_A_PAGE = 20
_SCANS_SHOWN = 20
_LONGEST_AREA = 20_000


@dataclass(frozen=True)
class ParcelLine:
    """One parcel in the table."""

    key: str
    place: str
    use: str
    area: float | None
    fetched_at: datetime


@dataclass(frozen=True)
class ScanShown:
    """One scan in the table, with the box around its area.

    `asked` and `found` of one that is not finished are None while a run shown above tells them: it
    counts in rounds, and two readings of one thing would contradict each other.
    """

    id: int
    box: Box
    quality: str
    began_at: datetime
    finished_at: datetime | None
    asked: int | None
    found: int | None


@dataclass(frozen=True)
class Planned:
    """An area that somebody drew or typed, and what a scan of it would cost."""

    text: str
    outline: Mapping[str, Any]
    cost: CostEstimate
    left_today: int | None


@dataclass(frozen=True)
class Parcels:
    """All of the page."""

    extent: Extent
    bounds: Box | None
    """What the map shows first: the area asked for, else the latest scan and those around it."""
    everything: Box | None
    """All scans of the table, else all parcels."""
    planned: Planned | None
    can_scan: bool
    run: RunLine | None
    scans: Sequence[ScanShown]
    parcels: Sequence[ParcelLine]
    matched: int
    after: str | None
    base_map: str | None
    base_map_credit: str


async def parcels(asked: Asked) -> Parcels:
    """What is known, and the plan that the address names."""
    house, store = asked.house, asked.store
    text = _area_text(asked)
    area = parse_drawn_area(text) if text else None
    box = None if area is None else Box(*area.bounds)
    run = await _run(asked)
    told_above = run is not None and run.how == "running"
    shown = [_scan_shown(one, told_above) for one in await list_scans(store, _SCANS_SHOWN)]
    boxes = [one.box for one in shown]
    known = await load_extent(store, bounds=not boxes)
    page = await load_page(store, Selection(box, limit=_ON_A_PAGE, after=asked.text("after")))
    return Parcels(
        extent=known,
        bounds=box or (_neighbourhood(boxes) if boxes else known.box),
        everything=_around(boxes) if boxes else known.box,
        planned=None if area is None else await _planned(house, text, area),
        can_scan=SCAN in house.catalogue.jobs,
        run=run,
        scans=shown,
        parcels=[_line(json.loads(one)) for one in page.features],
        matched=page.matched,
        after=page.after,
        base_map=house.settings.serve.base_map,
        base_map_credit=house.settings.serve.base_map_credit,
    )


def _scan_shown(scan: ScanSummary, told_above: bool) -> ScanShown:
    left_out = told_above and scan.finished_at is None
    return ScanShown(
        scan.id,
        Box(*shape(scan.area).bounds),
        str(scan.method.get("quality", scan.method.get("method", ""))),
        scan.began_at,
        scan.finished_at,
        None if left_out else scan.queries,
        None if left_out else scan.found,
    )


def _neighbourhood(boxes: Sequence[Box]) -> Box:
    """The first box with all that touch it, or one another."""
    seen, *others = boxes
    while near := [one for one in others if seen.polygon.intersects(one.polygon)]:
        seen = _around([seen, *near])
        others = [one for one in others if one not in near]
    return seen


def _around(boxes: Sequence[Box]) -> Box:
    west, south, east, north = zip(*boxes, strict=True)
    return Box(min(west), min(south), max(east), max(north))


async def _run(asked: Asked) -> RunLine | None:
    """The scan that the address names, else one that is at work."""
    number = asked.number("run")
    if number is None:
        found = await list_runs(asked.store, job=SCAN, unfinished=True, limit=1)
    else:
        found = [await get_run(asked.store, number)]
    return line_of(found[0], await asked.store.now()) if found else None


async def start_scan(asked: Asked) -> str:
    """Queue a scan of the area, and show the map that fills."""
    text = _area_text(asked)
    params = {"area": mapping(parse_drawn_area(text))}
    run = await queue_run(asked.store, asked.house.catalogue, SCAN, params)
    return f"/parcels?{urlencode({'area': text, 'run': run.id})}"


def _area_text(asked: Asked) -> str:
    # Longer than other values of an address: an area may have many corners.
    return " ".join(asked.values.get("area", "")[:_LONGEST_AREA].split())


async def _planned(house: House, text: str, area: Polygon) -> Planned:
    budgets = await read_quotas(house.store, SOURCE, outcomes=False)
    # Before the first question no endpoint is known, and nothing can be said.
    left = next((quota_line(one).remaining for one in budgets if one.endpoints), None)
    return Planned(text, mapping(area), await estimate_cost(house.store, area), left)


def _line(feature: Mapping[str, Any]) -> ParcelLine:
    told = feature["properties"]
    names = (told.get(name) for name in ("mahalleAd", "ilceAd", "ilAd"))
    area = told.get("alan")
    return ParcelLine(
        feature["id"],
        ", ".join(str(name) for name in names if name),
        str(told.get("nitelik") or ""),
        area if isinstance(area, int | float) else None,
        datetime.fromisoformat(told["fetchedAt"]),
    )


PAGES = (Page("/parcels", "parcels", parcels, "parcels"),)
ACTIONS = (Action("/parcels/scan", "run.queue", start_scan),)
