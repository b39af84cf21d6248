"""A parcel as Hasat publishes it: a GeoJSON Feature that is the same whichever way it was asked."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import shapely
from psycopg import AsyncConnection, sql

from hasat.feed.dataset import Scope
from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.sources.tkgm.registry.wire import ParcelKey, Registered
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store

_DECIMALS = 5
# By point the registry writes i and I where it has ı and İ by number.
_PLAIN = str.maketrans("ıİÇçĞğÖöŞşÜü", "iICcGgOoSsUu")


def key_text(key: ParcelKey) -> str:
    """A parcel's key as the feed has it: mahalleId, adaNo and parselNo."""
    return "/".join(map(str, key))


def feature_of(parcel: Registered, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The published form; `before` is the one known so far, whose better spellings stay."""
    properties = dict(parcel.properties)
    if "alan" in properties:
        properties["alan"] = parcel.area if parcel.area is not None else properties["alan"] or None
    if before is not None:
        known = before["properties"]
        properties = {name: _better(known.get(name), told) for name, told in properties.items()}
        # A question by number is told more than one by point, and the other way round.
        properties = {**known, **properties}
    geometry = None
    if parcel.geometry is not None:
        geometry = json.loads(shapely.to_geojson(parcel.geometry))
        geometry["coordinates"] = _rounded(geometry["coordinates"])
    feature = {
        "type": "Feature",
        "id": key_text(parcel.key),
        "geometry": geometry,
        "properties": properties,
    }
    if parcel.geometry is not None:
        feature["bbox"] = [round(side, _DECIMALS) for side in parcel.geometry.bounds]
    return feature


def _better(known: Any, told: Any) -> Any:
    """Of two spellings of one text, the one with its Turkish letters."""
    if not (isinstance(known, str) and isinstance(told, str)) or known == told:
        return told
    if known.translate(_PLAIN).casefold() != told.translate(_PLAIN).casefold():
        return told
    return max(told, known, key=lambda text: sum(not letter.isascii() for letter in text))


def _rounded(coordinates: Any) -> Any:
    if isinstance(coordinates, float | int):
        return round(coordinates, _DECIMALS)
    return [_rounded(one) for one in coordinates]


RETENTION_DAYS = 365


async def publish(
    store: Store,
    parcels: Mapping[str, Registered],
    *,
    run: int | None,
    gone: Sequence[str] = (),
) -> Version:
    """Bring the mirror to what was told: these parcels are so, those are no more."""
    async with Reconcile.begin(store, [PARCELS]) as work:
        known = await _known(work.connection, list(parcels))
        await work.stage(
            PARCELS,
            [
                Record(key, canonical(feature_of(parcel, known.get(key))))
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


async def _known(conn: AsyncConnection[Any], keys: list[str]) -> dict[str, Any]:
    cursor = await conn.execute("SELECT key, body FROM core.parcels WHERE key = ANY (%s)", [keys])
    return dict(await cursor.fetchall())
