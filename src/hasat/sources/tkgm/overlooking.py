"""Parcels from far away: how dense they lie, and which areas were scanned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from hasat.sources.tkgm.looking import TOUCHES, sides_of
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


async def density(store: Store, box: Box) -> Sequence[Cell]:
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


async def told_by(store: Store, scan: int) -> Sequence[tuple[str, str]]:
    """Keys and outlines that a scan was told, before they are published: to watch it fill."""
    async with store.connection() as conn:
        values = {"scan": scan, "limit": MOST_TOLD}
        cursor = await conn.execute(load_query(_PACKAGE, "told_by_scan"), values)
        return await cursor.fetchall()


async def scans(store: Store, limit: int = MOST_SCANS) -> Sequence[ScanLine]:
    """The latest scans first."""
    return await store.rows(ScanLine, load_query(_PACKAGE, "scans"), {"limit": limit})
