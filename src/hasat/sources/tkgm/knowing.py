"""What is known of an area when a scan of it begins, written down for the scan's whole time."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import shapely
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from shapely import MultiPolygon, Polygon
from shapely.geometry import mapping

from hasat.errors import BrokenAnswerError
from hasat.sources.tkgm.asking import read_question, spelled
from hasat.sources.tkgm.checking import KnownParcel, inside_point
from hasat.sources.tkgm.odds import START
from hasat.sources.tkgm.questions import Parcel, Point, Question
from hasat.sources.tkgm.wire import read_feature
from hasat.store.queries import load_query

# Parcels that reach into the area with less than this are left to the other side of the border.
_LEAST_DEGREES = 2e-9
_AT_ONCE = 2000
_PACKAGE = "hasat.sources.tkgm"


@dataclass(frozen=True)
class Known:
    """Parcels, points and numbers without one, and what the scan before had learnt."""

    parcels: Sequence[KnownParcel] = ()
    empty: Sequence[Question] = ()
    weights: Sequence[float] | None = None

    def __bool__(self) -> bool:
        return bool(self.parcels or self.empty)


async def write_known(
    conn: AsyncConnection[Any], scan: int, area: Polygon | MultiPolygon, age: timedelta
) -> None:
    """Fixes what is known for a scan that begins.

    What was told within `age` is taken as it is, unless the very same scan was complete since: who
    wants it again wants to know what is new.
    """
    values = {"scan": scan, "area": Jsonb(mapping(area)), "age": age}
    cursor = await conn.execute(load_query(_PACKAGE, "scan_before"), values)
    row = await cursor.fetchone()
    assert row is not None
    before, fresh_after = row
    values |= {"before": before, "fresh_after": fresh_after}
    await _write_parcels(conn, scan, area, values)
    if before is not None:
        await conn.execute(load_query(_PACKAGE, "empty_before"), values)
        await conn.execute("UPDATE tkgm.scan SET after = %s WHERE id = %s", (before, scan))


async def read_known(conn: AsyncConnection[Any], scan: int) -> Known:
    """What was fixed when the scan began, always in the same order."""
    parcels, empty = [], []
    async with conn.cursor("known") as cursor:
        cursor.itersize = _AT_ONCE
        await cursor.execute(
            "SELECT question, feature, fresh FROM tkgm.known WHERE scan = %s"
            " ORDER BY told_at, question, key",
            [scan],
        )
        async for text, feature, fresh in cursor:
            question = read_question(text)
            if feature is None:
                empty.append(question)
                continue
            try:
                told = read_feature(feature)
            except BrokenAnswerError:
                # Stored by an earlier release that checked less: found again, but never gone.
                continue
            if told.geometry is not None and isinstance(question, Point):
                # Only the ground matters here; the rest would fill the memory.
                parcels.append(KnownParcel(Parcel(told.key, told.geometry), question, fresh))
    return Known(parcels, empty, await _weights(conn, scan))


async def _write_parcels(
    conn: AsyncConnection[Any], scan: int, area: Polygon | MultiPolygon, values: dict[str, Any]
) -> None:
    """The parcels that lie in the area with more than a sliver, some at a time."""
    box = dict(zip(("west", "south", "east", "north"), area.bounds, strict=True))
    shapely.prepare(area)
    async with conn.cursor("known_before") as reading, conn.cursor() as writing:
        await reading.execute(load_query(_PACKAGE, "known_before"), {**values, **box})
        while some := await reading.fetchmany(_AT_ONCE):
            rows = []
            for key, body, told_at, question in some:
                where = _question(body["geometry"], area, question)
                if where is not None:
                    fresh = told_at > values["fresh_after"]
                    rows.append((scan, where, key, Jsonb(body), told_at, fresh))
            await writing.executemany(
                "INSERT INTO tkgm.known (scan, question, key, feature, told_at, fresh)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                rows,
            )


def _question(geometry: Any, area: Polygon | MultiPolygon, told: str | None) -> str | None:
    """Where to ask whether a parcel is still there; None if it hardly reaches into the area."""
    ground = shapely.from_geojson(json.dumps(geometry))
    if not area.covers(ground):
        ground = ground.intersection(area)
        if ground.area < _LEAST_DEGREES:
            return None
    return told or spelled(inside_point(ground))


async def _weights(conn: AsyncConnection[Any], scan: int) -> list[float] | None:
    """What the scan before had learnt, if this version of the program still means the same."""
    cursor = await conn.execute(
        "SELECT b.result -> 'weights' FROM tkgm.scan AS s JOIN tkgm.scan AS b ON b.id = s.after"
        " WHERE s.id = %s",
        [scan],
    )
    row = await cursor.fetchone()
    if row is None or not isinstance(row[0], list) or len(row[0]) != len(START):
        return None
    return [float(value) for value in row[0]]
