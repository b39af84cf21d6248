"""Parcels looked up in the mirror: by key, by point, by box, by time."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import shapely
from psycopg import AsyncConnection, sql
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.export import Fetched
from hasat.sources.tkgm.selection import Box, Selection
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.tkgm"
# As the index has it; the halves of a box that goes around the back of the earth.
TOUCHES = sql.SQL(
    "(box(point(p.east, p.north), point(p.west, p.south))"
    " && box(point(%(west)s, %(south)s), point(%(east)s, %(north)s))"
    " OR box(point(p.east, p.north), point(p.west, p.south))"
    " && box(point(%(west2)s, %(south)s), point(%(east2)s, %(north)s)))"
)
_NOT_BESIDE = sql.SQL("p.key <> ALL (%(beside)s)")
_SINCE = sql.SQL("coalesce(t.told_at, p.changed_at) >= %(since)s")
_UNTIL = sql.SQL("coalesce(t.told_at, p.changed_at) <= %(until)s")


@dataclass(frozen=True)
class Page:
    """Some of the parcels that match, as GeoJSON; `after` is where the next page begins."""

    features: tuple[str, ...]
    matched: int
    after: str | None


@dataclass(frozen=True)
class Extent:
    """How many parcels are known, where, and when they were told."""

    count: int
    box: Box | None
    first: datetime | None
    last: datetime | None


async def look(store: Store, asked: Selection) -> Page:
    """The page of parcels that a selection names; outlines decide, not their boxes."""
    async with store.connection() as conn:
        matches, values = await _condition(conn, asked)
        values |= {"after": asked.after, "limit": asked.limit + 1}
        first_the_box = sql.SQL("NOT MATERIALIZED" if asked.box is None else "MATERIALIZED")
        query = _filled("items", matches=matches, materialized=first_the_box)
        cursor = await conn.execute(query, values)
        rows = await cursor.fetchall()
        matched = await _count(conn, asked, matches, values)
    page = rows[: asked.limit]
    return Page(
        tuple(feature for _, feature in page),
        matched,
        page[-1][0] if len(rows) > len(page) else None,
    )


async def look_up(store: Store, key: str) -> str | None:
    """One parcel as GeoJSON."""
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "item"), {"key": key})
        row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def extent(store: Store, *, ground: bool = True) -> Extent:
    """When the known parcels were told, and where they are, unless `ground` is of no interest."""
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "extent"), {"ground": ground})
        row = await cursor.fetchone()
    assert row is not None
    count, *sides, first, last = row
    return Extent(count, None if sides[0] is None else Box(*sides), first, last)


async def _count(
    conn: AsyncConnection[Any], asked: Selection, matches: sql.Composable, values: dict[str, Any]
) -> int:
    if asked.everything:
        cursor = await conn.execute(
            "SELECT coalesce(max(records), 0) FROM feed.head WHERE dataset = %s", [PARCELS.name]
        )
    else:
        cursor = await conn.execute(_filled("items_count", matches=matches), values)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _condition(
    conn: AsyncConnection[Any], asked: Selection
) -> tuple[sql.Composable, dict[str, Any]]:
    parts: list[sql.Composable] = [sql.SQL("true")]
    values: dict[str, Any] = {"since": asked.since, "until": asked.until}
    if asked.box is not None:
        values |= sides_of(asked.box)
        values["beside"] = await _beside(conn, asked.box, values)
        parts += [TOUCHES, _NOT_BESIDE]
    if asked.since is not None:
        parts.append(_SINCE)
    if asked.until is not None:
        parts.append(_UNTIL)
    return sql.SQL(" AND ").join(parts), values


def sides_of(box: Box) -> dict[str, Any]:
    """What `TOUCHES` is filled with."""
    near, far = box.halves
    return {**near._asdict(), "west2": far.west, "east2": far.east}


async def _beside(conn: AsyncConnection[Any], box: Box, values: dict[str, Any]) -> list[str]:
    """Parcels whose box touches the asked one while they themselves do not."""
    cursor = await conn.execute(_filled("items_at_edge", touches=TOUCHES), values)
    rows = await cursor.fetchall()
    ground = box.ground
    shapely.prepare(ground)
    outlines = shapely.from_geojson([outline for _, outline in rows])
    touching = shapely.intersects(ground, outlines)
    return [key for (key, _), touched in zip(rows, touching, strict=True) if not touched]


def _filled(name: str, **parts: sql.Composable) -> sql.Composed:
    return sql.SQL(load_query(_PACKAGE, name)).format(**parts)


async def known_parcels(store: Store, area: Polygon | MultiPolygon | None = None) -> list[Fetched]:
    """All parcels, or those that reach into an area, with the time when they were last told."""
    bounds = (None,) * 4 if area is None else area.bounds
    values = dict(zip(("west", "south", "east", "north"), bounds, strict=True))
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "known_parcels"), values)
        rows: list[Any] = await cursor.fetchall()
    if area is None:
        return [Fetched(feature, at) for feature, at in rows]
    shapely.prepare(area)
    return [
        Fetched(feature, at)
        for feature, at in rows
        if area.intersects(shapely.from_geojson(json.dumps(feature["geometry"])))
    ]
