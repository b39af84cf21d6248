"""Read parcels from the mirror: by key, point, box and time."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import shapely
from psycopg import AsyncConnection, sql

from hasat.sources.tkgm.features import StoredParcel
from hasat.sources.tkgm.geometry import Outline
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
        materialized = sql.SQL("NOT MATERIALIZED" if selection.box is None else "MATERIALIZED")
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
        parcels = [StoredParcel(*row) for row in await cursor.fetchall()]
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
