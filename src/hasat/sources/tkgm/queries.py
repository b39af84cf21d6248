"""Read parcels of the mirror by key, point, box and time, their density, and scans of areas."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import mean
from typing import Any

import shapely
from psycopg import AsyncConnection, sql

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.export.tiles import Tile
from hasat.sources.tkgm.features import StoredParcel, unify_names
from hasat.sources.tkgm.geometry import TYPICAL_M2, Outline, geodesic_area
from hasat.sources.tkgm.selection import Box, Selection
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.tkgm"
# Written as the index has it; two boxes, because one may cross the antimeridian.
BBOX_OVERLAPS = sql.SQL(
    "(box(point(p.east, p.north), point(p.west, p.south))"
    " && box(point(%(west)s, %(south)s), point(%(east)s, %(north)s))"
    " OR box(point(p.east, p.north), point(p.west, p.south))"
    " && box(point(%(west2)s, %(south)s), point(%(east2)s, %(north)s)))"
)
_NOT_OUTSIDE = sql.SQL("p.key <> ALL (%(outside)s)")
_SINCE = sql.SQL("coalesce(t.told_at, p.changed_at) >= %(since)s")
_UNTIL = sql.SQL("coalesce(t.told_at, p.changed_at) <= %(until)s")
MAX_SCANS = 200
MAX_TILE_PARCELS = 30_000
MAX_OUTLINES = 5_000
_CELLS_ACROSS = 40
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
class Page:
    """One page of the matching parcels, as GeoJSON; `after` is where the next page begins."""

    features: tuple[str, ...]
    matched: int
    after: str | None


@dataclass(frozen=True)
class Extent:
    """The count, bounds and fetch times of the mirrored parcels."""

    count: int
    box: Box | None
    first: datetime | None
    last: datetime | None


async def load_page(store: Store, selection: Selection) -> Page:
    """Return a page of the selected parcels; outlines decide, not bounding boxes."""
    async with store.connection() as conn:
        matches, values = await _condition(conn, selection)
        values |= {"after": selection.after, "limit": selection.limit + 1}
        materialized = sql.SQL(
            "NOT MATERIALIZED"
            if selection.box is None and selection.condition is None
            else "MATERIALIZED"
        )
        query = _formatted("items", matches=matches, materialized=materialized)
        cursor = await conn.execute(query, values)
        rows = await cursor.fetchall()
        matched = await _count(conn, selection, matches, values)
    page = rows[: selection.limit]
    return Page(
        tuple(feature for _, feature in page),
        matched,
        page[-1][0] if len(rows) > len(page) else None,
    )


async def load_selected(store: Store, selection: Selection, limit: int) -> list[StoredParcel]:
    """Return all selected parcels; raise UsageError if there are more than the limit."""
    async with store.connection() as conn:
        matches, values = await _condition(conn, selection)
        cursor = await conn.execute(
            _formatted("selected_parcels", matches=matches), values | {"limit": limit + 1}
        )
        rows = await cursor.fetchall()
    if len(rows) > limit:
        raise UsageError(
            msg("The selection has more than {limit:,} parcels.", limit=limit),
            remedy=msg("Select fewer with `bbox` or `filter`, or take the archive of the dataset."),
        )
    return unify_names([StoredParcel(*row) for row in rows])


async def load_tile(store: Store, tile: Tile) -> list[tuple[str, dict[str, Any]]]:
    """Return the keys and features of the parcels that can be seen in a tile."""
    values = bbox_params(tile.box) | {"least": tile.least_degrees, "limit": MAX_TILE_PARCELS}
    async with store.connection() as conn:
        cursor = await conn.execute(_formatted("tile_parcels", touches=BBOX_OVERLAPS), values)
        return await cursor.fetchall()


async def load_item(store: Store, key: str) -> str | None:
    """Return one parcel as GeoJSON."""
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "item"), {"key": key})
        row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def load_extent(store: Store, *, bounds: bool = True) -> Extent:
    """Return the extent of the mirrored parcels; without `bounds` only count and times."""
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "extent"), {"bounds": bounds})
        row = await cursor.fetchone()
    assert row is not None
    count, *sides, first, last = row
    return Extent(count, None if sides[0] is None else Box(*sides), first, last)


async def load_parcels(store: Store, area: Outline | None = None) -> list[StoredParcel]:
    """Return all parcels, or those that intersect an area."""
    bounds = (None,) * 4 if area is None else area.bounds
    values = dict(zip(("west", "south", "east", "north"), bounds, strict=True))
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "parcels_in_box"), values)
        parcels = unify_names([StoredParcel(*row) for row in await cursor.fetchall()])
    if area is None:
        return parcels
    shapely.prepare(area)
    return [
        one
        for one in parcels
        if one.feature is not None
        and area.intersects(shapely.from_geojson(json.dumps(one.feature["geometry"])))
    ]


def bbox_params(box: Box) -> dict[str, Any]:
    """Return the parameters of `BBOX_OVERLAPS`."""
    near, far = box.halves
    return {**near._asdict(), "west2": far.west, "east2": far.east}


async def _count(
    conn: AsyncConnection[Any],
    selection: Selection,
    matches: sql.Composable,
    values: dict[str, Any],
) -> int:
    if selection.everything:
        cursor = await conn.execute(
            "SELECT coalesce(max(records), 0) FROM feed.head WHERE dataset = %s", [PARCELS.name]
        )
    else:
        cursor = await conn.execute(_formatted("items_count", matches=matches), values)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _condition(
    conn: AsyncConnection[Any], selection: Selection
) -> tuple[sql.Composable, dict[str, Any]]:
    parts: list[sql.Composable] = [sql.SQL("true")]
    values: dict[str, Any] = {"since": selection.since, "until": selection.until}
    if selection.box is not None:
        values |= bbox_params(selection.box)
        values["outside"] = await _keys_outside(conn, selection.box, values)
        parts += [BBOX_OVERLAPS, _NOT_OUTSIDE]
    if selection.condition is not None:
        parts.append(selection.condition.sql)
        values |= selection.condition.values
    if selection.since is not None:
        parts.append(_SINCE)
    if selection.until is not None:
        parts.append(_UNTIL)
    return sql.SQL(" AND ").join(parts), values


async def _keys_outside(conn: AsyncConnection[Any], box: Box, values: dict[str, Any]) -> list[str]:
    """Return the parcels whose bounding box overlaps a box while their outline does not."""
    cursor = await conn.execute(_formatted("items_at_edge", touches=BBOX_OVERLAPS), values)
    rows = await cursor.fetchall()
    polygon = box.polygon
    shapely.prepare(polygon)
    outlines = shapely.from_geojson([outline for _, outline in rows])
    touching = shapely.intersects(polygon, outlines)
    return [key for (key, _), touched in zip(rows, touching, strict=True) if not touched]


def _formatted(name: str, **parts: sql.Composable) -> sql.Composed:
    return sql.SQL(load_query(_PACKAGE, name)).format(**parts)


@dataclass(frozen=True)
class Cell:
    """A cell of the density grid and how many parcels have their centre in it."""

    box: Box
    parcels: int


@dataclass(frozen=True)
class ScanSummary:
    """One scan of an area; when complete, the share found at least, and numbers never seen."""

    id: int
    area: dict[str, Any]
    method: Mapping[str, Any]
    began_at: datetime
    finished_at: datetime | None
    queries: int
    found: int
    at_least: float | None = None
    missing_numbers: int | None = None


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
    size = TYPICAL_M2 if rough else max(mean(sizes), 1.0)
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
