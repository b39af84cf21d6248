"""What a scan would roughly cost, without asking the registry anything."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import mean
from typing import Any

import shapely
from psycopg import AsyncConnection, sql
from shapely import MultiPolygon, Polygon

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.queries import TOUCHES, sides_of
from hasat.sources.tkgm.registry.wire import geodesic_area
from hasat.sources.tkgm.selection import Box
from hasat.store import Store
from hasat.store.queries import load_query

ACROSS = 40
MOST_SCANS = 200
MOST_TOLD = 5_000
_PACKAGE = "hasat.sources.tkgm"


@dataclass(frozen=True)
class Cell:
    """A piece of ground and how many parcels have their middle in it."""

    box: Box
    parcels: int


@dataclass(frozen=True)
class ScanLine:
    """One scan of an area."""

    id: int
    area: dict[str, Any]
    method: Mapping[str, Any]
    began_at: datetime
    finished_at: datetime | None
    asked: int
    found: int


async def parcel_density(store: Store, box: Box) -> Sequence[Cell]:
    """The cells of a grid over the box that have parcels in them."""
    east = box.east if box.west <= box.east else box.east + 360
    width, height = (east - box.west) / ACROSS, (box.north - box.south) / ACROSS
    if not (width and height):
        return ()
    query = sql.SQL(load_query(_PACKAGE, "density")).format(touches=TOUCHES)
    values = {**sides_of(box), "width": width, "height": height, "across": ACROSS}
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
    """Keys and outlines that a scan was told, before they are published: to watch it fill."""
    async with store.connection() as conn:
        values = {"scan": scan, "limit": MOST_TOLD}
        cursor = await conn.execute(load_query(_PACKAGE, "told_by_scan"), values)
        return await cursor.fetchall()


async def list_scans(store: Store, limit: int = MOST_SCANS) -> Sequence[ScanLine]:
    """The latest scans first."""
    return await store.rows(ScanLine, load_query(_PACKAGE, "scans"), {"limit": limit})


LARGEST_KM2 = 2_000.0
_MOST_CORNERS = 500
# Of registered parcels all over the country, the middle one.
_TYPICAL_M2 = 919.0
# The rest is roads and water; and what a parcel costs with the default method.
_SHARE_IN_PARCELS = 0.85
_QUESTIONS_EACH = (1.6, 2.5)
_ENOUGH = 20
# The mean of so many is as good as that of all, and large areas hold very many.
_SAMPLE = 500
_NEIGHBOURHOOD_DEGREES = 0.02


@dataclass(frozen=True)
class Cost:
    """What is known of an area, and what a scan of it may find and ask."""

    km2: float
    known: int
    parcels: int
    least: int
    most: int
    rough: bool
    """Nothing near is known, so it goes by what is usual in the country."""


def read_drawn(text: str) -> Polygon:
    """An area as a person draws or types it: a box, or corners with a space between.

    `west,south,east,north` or `lon,lat lon,lat lon,lat ...`
    """
    try:
        corners = [tuple(map(float, one.split(","))) for one in text.split()]
        if not all(math.isfinite(side) for corner in corners for side in corner):
            raise ValueError("not a place")
        if len(corners) == 1 and len(corners[0]) == 4:
            area = shapely.box(*corners[0])
        elif 3 <= len(corners) <= _MOST_CORNERS and {len(one) for one in corners} == {2}:
            area = Polygon(corners)
        else:
            raise ValueError("neither a box nor corners")
        west, south, east, north = area.bounds
        if not (-180 <= west < east <= 180 and -85 <= south < north <= 85 and area.is_valid):
            raise ValueError("not an area")
    except (ValueError, TypeError, shapely.errors.ShapelyError) as error:
        raise UsageError(
            msg("{text!r} is not an area.", text=text[:80]),
            remedy=msg(
                "Give west,south,east,north in degrees, for example "
                "32.84,39.89,32.86,39.91, or at least three corners lon,lat with a space "
                "between, whose edges do not cross."
            ),
        ) from error
    if geodesic_area(area) > LARGEST_KM2 * 1e6:
        raise UsageError(
            msg("The area is larger than {largest_km2:,.0f} km².", largest_km2=LARGEST_KM2),
            remedy=msg("Draw a smaller one: scans are for towns and villages."),
        )
    return area


async def cost_of(store: Store, area: Polygon | MultiPolygon) -> Cost:
    """By the parcels known in the area, else around it, else what is usual."""
    async with store.connection() as conn:
        inside = await _keys(conn, Box(*area.bounds), area)
        sizes = await _sizes(conn, inside)
        if len(sizes) < _ENOUGH:
            sizes = await _sizes(conn, await _keys(conn, _around(area)))
    rough = len(sizes) < _ENOUGH
    size = _TYPICAL_M2 if rough else max(mean(sizes), 1.0)
    ground, known = geodesic_area(area), len(inside)
    parcels = max(known, math.ceil(_SHARE_IN_PARCELS * ground / size))
    # What is known and fresh is not asked again; what is not known yet is the cost.
    unknown = parcels - known
    least, most = (math.ceil(each * unknown) for each in _QUESTIONS_EACH)
    return Cost(ground / 1e6, known, parcels, least, max(most, 1), rough)


def _around(area: Polygon | MultiPolygon) -> Box:
    west, south, east, north = area.bounds
    reach = _NEIGHBOURHOOD_DEGREES
    return Box(
        max(west - reach, -180), max(south - reach, -90), min(east + reach, 180), north + reach
    )


async def _keys(
    conn: AsyncConnection[Any], box: Box, area: Polygon | MultiPolygon | None = None
) -> Sequence[str]:
    """The parcels of a box, or those that have their middle in an area."""
    query = sql.SQL(load_query(_PACKAGE, "middles")).format(touches=TOUCHES)
    rows = await (await conn.execute(query, sides_of(box))).fetchall()
    if area is None or not rows:
        return [key for key, _, _ in rows]
    keys, x, y = zip(*rows, strict=True)
    shapely.prepare(area)
    inside = shapely.contains_xy(area, x, y)
    return [key for key, there in zip(keys, inside, strict=True) if there]


async def _sizes(conn: AsyncConnection[Any], keys: Sequence[str]) -> Sequence[float]:
    """How large they are, or some from all over them."""
    some = keys[:: max(1, len(keys) // _SAMPLE)]
    found = await conn.execute(load_query(_PACKAGE, "sizes"), {"keys": list(some)})
    return [size for (size,) in await found.fetchall()]
