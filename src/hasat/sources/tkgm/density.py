"""Parcels of large areas: their density, the scans of them, and what a scan would cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import mean
from typing import Any

import shapely
from psycopg import AsyncConnection, sql

from hasat.sources.tkgm.geometry import Outline, geodesic_area
from hasat.sources.tkgm.queries import BBOX_OVERLAPS, bbox_params
from hasat.sources.tkgm.selection import Box
from hasat.store import Store
from hasat.store.queries import load_query

MAX_SCANS = 200
MAX_OUTLINES = 5_000
_CELLS_ACROSS = 40
_PACKAGE = "hasat.sources.tkgm"
# The median of registered parcels all over the country.
_TYPICAL_M2 = 919.0
# The rest is roads and water.
_PARCEL_SHARE = 0.85
# The range of queries per parcel with the default method.
_QUERIES_PER_PARCEL = (1.6, 2.5)
# Fewer known parcels than this say nothing about the others.
_MIN_KNOWN = 20
# The mean of this many is as good as that of all, and large areas hold very many.
_SAMPLE = 500
_NEIGHBOURHOOD_DEGREES = 0.02


@dataclass(frozen=True)
class Cell:
    """A cell of the density grid and how many parcels have their centre in it."""

    box: Box
    parcels: int


@dataclass(frozen=True)
class ScanSummary:
    """One scan of an area."""

    id: int
    area: dict[str, Any]
    method: Mapping[str, Any]
    began_at: datetime
    finished_at: datetime | None
    queries: int
    found: int


@dataclass(frozen=True)
class CostEstimate:
    """The size of an area, and how many parcels and queries a scan of it may take.

    It is `rough` when no parcel near is known and the country's typical parcel is assumed.
    """

    km2: float
    known: int
    parcels: int
    least: int
    most: int
    rough: bool


async def parcel_density(store: Store, box: Box) -> Sequence[Cell]:
    """Return the cells of a grid over a box that have parcels in them."""
    east = box.east if box.west <= box.east else box.east + 360
    width, height = (east - box.west) / _CELLS_ACROSS, (box.north - box.south) / _CELLS_ACROSS
    if not (width and height):
        return ()
    query = sql.SQL(load_query(_PACKAGE, "density")).format(touches=BBOX_OVERLAPS)
    values = {**bbox_params(box), "width": width, "height": height, "across": _CELLS_ACROSS}
    async with store.connection() as conn:
        rows = await (await conn.execute(query, values)).fetchall()
    return [
        Cell(
            Box(
                box.west + x * width,
                box.south + y * height,
                box.west + (x + 1) * width,
                box.south + (y + 1) * height,
            ),
            count,
        )
        for x, y, count in rows
    ]


async def scan_outlines(store: Store, scan: int) -> Sequence[tuple[str, str]]:
    """Return keys and outlines that a scan has found, including those not yet published."""
    async with store.connection() as conn:
        values = {"scan": scan, "limit": MAX_OUTLINES}
        cursor = await conn.execute(load_query(_PACKAGE, "scan_outlines"), values)
        return await cursor.fetchall()


async def list_scans(store: Store, limit: int = MAX_SCANS) -> Sequence[ScanSummary]:
    """Return scans, newest first."""
    return await store.rows(ScanSummary, load_query(_PACKAGE, "scans"), {"limit": limit})


async def estimate_cost(store: Store, area: Outline) -> CostEstimate:
    """Estimate a scan from the parcels known in the area, else near it, else from typical ones."""
    async with store.connection() as conn:
        inside = await _keys(conn, Box(*area.bounds), area)
        sizes = await _sizes(conn, inside)
        if len(sizes) < _MIN_KNOWN:
            sizes = await _sizes(conn, await _keys(conn, _around(area)))
    rough = len(sizes) < _MIN_KNOWN
    size = _TYPICAL_M2 if rough else max(mean(sizes), 1.0)
    area_m2, known = geodesic_area(area), len(inside)
    parcels = max(known, math.ceil(_PARCEL_SHARE * area_m2 / size))
    # Known and recent parcels are not queried again; the unknown ones are the cost.
    unknown = parcels - known
    least, most = (math.ceil(each * unknown) for each in _QUERIES_PER_PARCEL)
    return CostEstimate(area_m2 / 1e6, known, parcels, least, max(most, 1), rough)


def _around(area: Outline) -> Box:
    west, south, east, north = area.bounds
    reach = _NEIGHBOURHOOD_DEGREES
    return Box(
        max(west - reach, -180), max(south - reach, -90), min(east + reach, 180), north + reach
    )


async def _keys(conn: AsyncConnection[Any], box: Box, area: Outline | None = None) -> Sequence[str]:
    """Return the parcels that overlap a box, or those whose centre is in an area."""
    query = sql.SQL(load_query(_PACKAGE, "centres")).format(touches=BBOX_OVERLAPS)
    rows = await (await conn.execute(query, bbox_params(box))).fetchall()
    if area is None or not rows:
        return [key for key, _, _ in rows]
    keys, x, y = zip(*rows, strict=True)
    shapely.prepare(area)
    inside = shapely.contains_xy(area, x, y)
    return [key for key, there in zip(keys, inside, strict=True) if there]


async def _sizes(conn: AsyncConnection[Any], keys: Sequence[str]) -> Sequence[float]:
    """Return the areas of parcels in square metres, of a sample where there are many."""
    sample = keys[:: max(1, len(keys) // _SAMPLE)]
    cursor = await conn.execute(load_query(_PACKAGE, "sizes"), {"keys": list(sample)})
    return [size for (size,) in await cursor.fetchall()]
