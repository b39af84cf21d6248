"""Parcels as Hasat publishes them: GeoJSON Features that do not depend on the kind of query."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import shapely
from psycopg import AsyncConnection, sql
from shapely.geometry import shape
from shapely.geometry.base import BaseGeometry

from hasat.feed.dataset import Scope
from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store

RETENTION_DAYS = 365
_DECIMALS = 5
# A query by point returns i and I where a query by number returns ı and İ.
_PLAIN = str.maketrans("ıİÇçĞğÖöŞşÜü", "iICcGgOoSsUu")


@dataclass(frozen=True)
class StoredParcel:
    """A published feature, or None where there is no parcel, and when the registry returned it."""

    feature: Mapping[str, Any] | None
    fetched_at: datetime

    @property
    def geometry(self) -> BaseGeometry | None:
        """The outline, unless the parcel is passive or its outline collapsed in the rounding."""
        geometry = None if self.feature is None else self.feature["geometry"]
        outline = None if geometry is None else shape(geometry)
        return outline if outline is None or outline.area > 0 else None

    @property
    def properties(self) -> dict[str, Any]:
        """The properties with the time of the response, in UTC."""
        properties = {} if self.feature is None else self.feature["properties"]
        return {**properties, "fetchedAt": self.fetched_at.astimezone(UTC).isoformat()}

    def dated(self) -> dict[str, Any] | None:
        """Return the feature with the time of the response among its properties."""
        return None if self.feature is None else {**self.feature, "properties": self.properties}


def format_key(key: ParcelKey) -> str:
    """Return the key of a parcel as the feed has it: mahalleId/adaNo/parselNo."""
    return "/".join(map(str, key))


def build_feature(parcel: Parcel, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the published form; `before` is the current one, whose better spellings stay."""
    properties = dict(parcel.properties)
    if "alan" in properties:
        properties["alan"] = parcel.area if parcel.area is not None else properties["alan"] or None
    if before is not None:
        known = before["properties"]
        properties = {name: _better(known.get(name), value) for name, value in properties.items()}
        # Queries by number and by point return different sets of properties.
        properties = {**known, **properties}
    geometry = None
    if parcel.geometry is not None:
        geometry = json.loads(shapely.to_geojson(parcel.geometry))
        geometry["coordinates"] = _rounded(geometry["coordinates"])
    feature = {
        "type": "Feature",
        "id": format_key(parcel.key),
        "geometry": geometry,
        "properties": properties,
    }
    if parcel.geometry is not None:
        feature["bbox"] = [round(side, _DECIMALS) for side in parcel.geometry.bounds]
    return feature


async def publish_parcels(
    store: Store,
    parcels: Mapping[str, Parcel],
    *,
    run: int | None,
    gone: Sequence[str] = (),
) -> Version:
    """Write parcels to the mirror, and remove those whose keys are `gone`."""
    async with Reconcile.begin(store, [PARCELS]) as work:
        known = await _load_bodies(work.connection, list(parcels))
        await work.stage(
            PARCELS,
            [
                Record(key, canonical(build_feature(parcel, known.get(key))))
                for key, parcel in parcels.items()
            ],
        )
        there = sql.SQL("m.key = ANY (%(gone)s)")
        await work.diff(PARCELS, Scope({"parcels": True}, there, {"gone": list(gone)}))
        await work.connection.execute(
            "INSERT INTO tkgm.parcel_told (key, told_at)"
            " SELECT key, clock_timestamp() FROM unnest(%s::text[]) AS key"
            " ON CONFLICT (key) DO UPDATE SET told_at = EXCLUDED.told_at",
            [list(parcels)],
        )
        return await work.write(run=run, retention_days=RETENTION_DAYS)


async def _load_bodies(conn: AsyncConnection[Any], keys: list[str]) -> dict[str, Any]:
    cursor = await conn.execute("SELECT key, body FROM core.parcels WHERE key = ANY (%s)", [keys])
    return dict(await cursor.fetchall())


def _better(known: Any, new: Any) -> Any:
    """Return the spelling that has the Turkish letters, if both spell the same text."""
    if not (isinstance(known, str) and isinstance(new, str)) or known == new:
        return new
    if known.translate(_PLAIN).casefold() != new.translate(_PLAIN).casefold():
        return new
    return max(new, known, key=lambda text: sum(not letter.isascii() for letter in text))


def _rounded(coordinates: Any) -> Any:
    if isinstance(coordinates, float | int):
        return round(coordinates, _DECIMALS)
    return [_rounded(one) for one in coordinates]
