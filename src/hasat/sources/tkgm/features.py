"""Parcels as Hasat publishes them: GeoJSON Features that do not depend on the kind of query."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import shapely
from psycopg import AsyncConnection, sql
from shapely.geometry import shape
from shapely.geometry.base import BaseGeometry

from hasat.feed.dataset import Scope
from hasat.feed.encoding import canonical
from hasat.feed.guard import measure_removals
from hasat.feed.holds import Hold, check_guard
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.sources.tkgm.geometry import polygons_of
from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store

RETENTION_DAYS = 365
GONE = "gone"
"""The name of the input of a hold: the keys to remove."""

# Up to this many removals are applied without approval, whatever their share.
_UNGUARDED_REMOVALS = 10
_DECIMALS = 5
_PLACES = (("ilAd", "ilId"), ("ilceAd", "ilceId"), ("mahalleAd", "mahalleId"))
# A query by point returns i and I where a query by number returns ı and İ.
_PLAIN = str.maketrans("ıİÇçĞğÖöŞşÜü", "iICcGgOoSsUu")


@dataclass(frozen=True)
class StoredParcel:
    """A published feature, or None where there is no parcel, and when the registry returned it."""

    feature: Mapping[str, Any] | None
    fetched_at: datetime

    @cached_property
    def geometry(self) -> BaseGeometry | None:
        """The valid outline, unless the parcel is passive or it collapsed in the rounding."""
        geometry = None if self.feature is None else self.feature["geometry"]
        return None if geometry is None else _repaired(shape(geometry))

    @property
    def properties(self) -> dict[str, Any]:
        """The properties with the time of the response, in UTC."""
        properties = {} if self.feature is None else self.feature["properties"]
        return {**properties, "fetchedAt": self.fetched_at.astimezone(UTC).isoformat()}

    def dated(self) -> dict[str, Any] | None:
        """Return the feature with the time of the response among its properties."""
        if self.feature is None:
            return None
        return {**self.feature, "geometry": self._drawn, "properties": self.properties}

    @property
    def _drawn(self) -> Any:
        """The outline as GeoJSON: as it is published, or repaired."""
        geometry = None if self.feature is None else self.feature["geometry"]
        if geometry is None or shape(geometry).is_valid:
            return geometry
        return None if self.geometry is None else json.loads(shapely.to_geojson(self.geometry))


def _repaired(outline: BaseGeometry) -> BaseGeometry | None:
    """Return an outline whose corners were rounded onto one another as a valid one."""
    if not outline.is_valid:
        outline = shapely.make_valid(outline, method="structure")
    parts = [part for part in polygons_of(outline) if part.area > 0]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def unify_names(parcels: Sequence[StoredParcel]) -> list[StoredParcel]:
    """Return the parcels with one spelling of each province, district and neighbourhood.

    A query by point returns "Tuglaci Basi" where a query by number returns "Tuğlacı Başı".
    """
    best: dict[tuple[str, Any, str], str] = {}
    for one in parcels:
        for _name, key, text in _place_names(one):
            best[key] = _better(best.get(key), text)
    unified = []
    for one in parcels:
        names = {name: best[key] for name, key, text in _place_names(one) if best[key] != text}
        if names and one.feature is not None:
            properties = {**one.feature["properties"], **names}
            one = StoredParcel({**one.feature, "properties": properties}, one.fetched_at)
        unified.append(one)
    return unified


def _place_names(one: StoredParcel) -> Iterator[tuple[str, tuple[str, Any, str], str]]:
    """Yield each name of a place, what it is the same under, and its spelling."""
    properties = {} if one.feature is None else one.feature["properties"]
    for name, number in _PLACES:
        text = properties.get(name)
        if isinstance(text, str) and properties.get(number) is not None:
            yield name, (name, properties[number], _plain(text)), text


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
    store: Store, parcels: Mapping[str, Parcel], *, run: int | None
) -> Version:
    """Write parcels to the mirror."""
    async with Reconcile.begin(store, [PARCELS]) as work:
        known = await _load_bodies(work.connection, list(parcels))
        await work.stage(
            PARCELS,
            [
                Record(key, canonical(build_feature(parcel, known.get(key))))
                for key, parcel in parcels.items()
            ],
        )
        await work.diff(PARCELS, Scope({"parcels": True}, sql.SQL("false")))
        await work.connection.execute(
            "INSERT INTO tkgm.parcel_told (key, told_at)"
            " SELECT key, clock_timestamp() FROM unnest(%s::text[]) AS key"
            " ON CONFLICT (key) DO UPDATE SET told_at = EXCLUDED.told_at",
            [list(parcels)],
        )
        return await work.write(run=run, retention_days=RETENTION_DAYS)


async def remove_parcels(
    store: Store, keys: Sequence[str], *, run: int | None, known: int = 0, hold: Hold | None = None
) -> Version:
    """Remove parcels from the mirror; raise GuardError if they are many of the known ones.

    `hold` is the approved hold that these keys belong to; parcels that were received since stay.
    """
    async with Reconcile.begin(store, [PARCELS]) as work:
        gone = set(keys)
        if hold is not None:
            cursor = await work.connection.execute(
                "SELECT key FROM tkgm.parcel_told WHERE key = ANY (%s) AND told_at > %s",
                (list(keys), hold.at),
            )
            gone -= {key for (key,) in await cursor.fetchall()}
        await work.stage(PARCELS, [])
        # Unlike that of parcels which are published: those must not close this hold.
        described = {"gone": len(gone), "first": min(gone, default=None)}
        there = Scope(described, sql.SQL("m.key = ANY (%(gone)s)"), {"gone": sorted(gone)})
        counts = await work.diff(PARCELS, there)
        await check_guard(
            work,
            [PARCELS],
            measure_removals(
                PARCELS.name, counts.removed, known, PARCELS.guard, unguarded=_UNGUARDED_REMOVALS
            ),
            approving=None if hold is None else hold.id,
            inputs={GONE: json.dumps(sorted(gone)).encode()},
        )
        return await work.write(
            run=run,
            retention_days=RETENTION_DAYS,
            approving=None if hold is None else hold.id,
        )


async def _load_bodies(conn: AsyncConnection[Any], keys: list[str]) -> dict[str, Any]:
    cursor = await conn.execute("SELECT key, body FROM core.parcels WHERE key = ANY (%s)", [keys])
    return dict(await cursor.fetchall())


def _better(known: Any, new: Any) -> Any:
    """Return the spelling that has the Turkish letters, if both spell the same text."""
    if not (isinstance(known, str) and isinstance(new, str)) or known == new:
        return new
    if _plain(known) != _plain(new):
        return new
    return max(new, known, key=lambda text: sum(not letter.isascii() for letter in text))


def _plain(text: str) -> str:
    return text.translate(_PLAIN).casefold()


def _rounded(coordinates: Any) -> Any:
    if isinstance(coordinates, float | int):
        return round(coordinates, _DECIMALS)
    return [_rounded(one) for one in coordinates]
