"""Parcels that are known, out of the mirror."""

import json
from typing import Any

import shapely
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.export import Fetched
from hasat.store import Store
from hasat.store.queries import load_query


async def known_parcels(store: Store, area: Polygon | MultiPolygon | None = None) -> list[Fetched]:
    """All parcels, or those that reach into an area, with the time when they were last told."""
    bounds = (None,) * 4 if area is None else area.bounds
    values = dict(zip(("west", "south", "east", "north"), bounds, strict=True))
    async with store.connection() as conn:
        cursor = await conn.execute(load_query("hasat.sources.tkgm", "known_parcels"), values)
        rows: list[Any] = await cursor.fetchall()
    if area is None:
        return [Fetched(feature, at) for feature, at in rows]
    shapely.prepare(area)
    return [
        Fetched(feature, at)
        for feature, at in rows
        if area.intersects(shapely.from_geojson(json.dumps(feature["geometry"])))
    ]
