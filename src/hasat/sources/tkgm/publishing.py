"""Parcels into the mirror: those that were told, and what is gone from an area that is complete."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import shapely
from psycopg import AsyncConnection, sql
from shapely import MultiPolygon, Polygon
from shapely.geometry import shape

from hasat.feed.dataset import Scope
from hasat.feed.digest import canonical
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.sources.tkgm.datasets import PARCELS
from hasat.sources.tkgm.features import feature_of
from hasat.sources.tkgm.wire import Registered
from hasat.store import Store

RETENTION_DAYS = 365
_NOWHERE = Scope({"points": True}, sql.SQL("false"))


@dataclass(frozen=True)
class Whole:
    """An area that was scanned completely, and everything found in it."""

    area: Polygon | MultiPolygon
    found: Collection[str]


async def publish(
    store: Store,
    parcels: Mapping[str, Registered],
    *,
    run: int | None,
    whole: Whole | None = None,
) -> Version:
    """Bring the mirror to what was told; what is not found in a whole area is gone."""
    async with Reconcile.begin(store, [PARCELS]) as work:
        known = await _known(work.connection, list(parcels))
        await work.stage(
            PARCELS,
            [
                Record(key, canonical(feature_of(parcel, known.get(key))))
                for key, parcel in parcels.items()
            ],
        )
        scope = _NOWHERE
        spared: Collection[str] = ()
        if whole is not None:
            inside = await _inside(work.connection, whole.area)
            scope = Scope({"area": True}, sql.SQL("m.key = ANY (%(inside)s)"), {"inside": inside})
            spared = whole.found
        await work.diff(PARCELS, scope, spared)
        await work.connection.execute(
            "INSERT INTO tkgm.parcel_told (key, told_at)"
            " SELECT key, clock_timestamp() FROM unnest(%s::text[]) AS key"
            " ON CONFLICT (key) DO UPDATE SET told_at = EXCLUDED.told_at",
            [list(parcels)],
        )
        return await work.write(run=run, retention_days=RETENTION_DAYS)


async def _known(conn: AsyncConnection[Any], keys: list[str]) -> dict[str, Any]:
    cursor = await conn.execute("SELECT key, body FROM core.parcels WHERE key = ANY (%s)", [keys])
    return dict(await cursor.fetchall())


async def _inside(conn: AsyncConnection[Any], area: Polygon | MultiPolygon) -> list[str]:
    """The known parcels of an area: a point of their ground decides, so that one that reaches over
    the border belongs to one side only."""
    west, south, east, north = area.bounds
    cursor = await conn.execute(
        "SELECT key, body -> 'geometry' FROM core.parcels"
        " WHERE box(point(east, north), point(west, south))"
        " && box(point(%s, %s), point(%s, %s))",
        (east, north, west, south),
    )
    shapely.prepare(area)
    return [
        key
        for key, geometry in await cursor.fetchall()
        if area.contains(shape(geometry).representative_point())
    ]
