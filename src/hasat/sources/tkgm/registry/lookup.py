"""Single parcels: from stored responses that are recent enough, otherwise from the registry."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import shapely
from psycopg.types.json import Jsonb
from shapely.geometry import shape

from hasat.errors import UsageError
from hasat.fetch import RequestContext
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.features import StoredParcel, build_feature
from hasat.sources.tkgm.geometry import Plane, check_in_turkey
from hasat.sources.tkgm.registry.client import MAX_BATCH_POINTS, ParcelResponse, RegistryClient
from hasat.sources.tkgm.registry.wire import (
    ParcelNumber,
    Point,
    Query,
    format_query,
    is_number,
)
from hasat.sources.tkgm.settings import TkgmSettings
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.tkgm"
# Outlines are rounded to about a metre: nearer to an edge, the point may be the neighbour's.
_INSIDE_METRES = 1.5


def check_point(lat: float, lon: float) -> Point:
    """Return a point in Turkey; raise UsageError for anything else."""
    # Also false for NaN.
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):
        raise UsageError(
            msg(
                "{lat}, {lon} is not a place: latitude comes first and is from -90 to "
                "90, longitude from -180 to 180.",
                lat=lat,
                lon=lon,
            )
        )
    check_in_turkey(shapely.Point(lon, lat))
    return Point(float(lat), float(lon))


def check_number(mahalle: int | str, ada: object, parsel: object) -> ParcelNumber:
    """Return a parcel number; raise UsageError for what no parcel has."""
    numbers = str(ada).strip(), str(parsel).strip()
    if not (str(mahalle).isdecimal() and len(str(mahalle)) < 19 and all(map(is_number, numbers))):
        raise UsageError(
            msg("{number} is not the number of a parcel.", number=f"{mahalle}/{ada}/{parsel}"),
            remedy=msg("Give a neighbourhood id, a block (0 in villages) and a parcel number."),
        )
    return ParcelNumber(int(mahalle), *numbers)


class Lookup:
    """Find parcels by point or number; `fresh` queries the registry even for known ones."""

    def __init__(
        self, store: Store, settings: Settings, registry: RegistryClient, context: RequestContext
    ) -> None:
        self._store = store
        self._registry = registry
        self._context = context
        self._ages = {
            "parcel_age": settings.section(TkgmSettings).parcel_age,
            "not_found_age": settings.section(TkgmSettings).not_found_age,
        }

    async def delete_expired(self) -> None:
        """Delete the stored responses that are too old to be used again."""
        async with self._store.connection() as conn:
            await conn.execute(load_query(_PACKAGE, "delete_expired_responses"), self._ages)

    async def at(self, point: Point, *, fresh: bool = False) -> StoredParcel:
        """Return the parcel at a point."""
        if not fresh and (stored := await self._load_points([point])):
            return stored[point]
        return (await self._save([await self._registry.fetch_one(point, self._context)]))[point]

    async def numbered(self, number: ParcelNumber, *, fresh: bool = False) -> StoredParcel:
        """Return the parcel with a number."""
        if not fresh and (stored := await self._load_number(number)):
            return stored
        return (await self._save([await self._registry.fetch_one(number, self._context)]))[number]

    async def batch(
        self, points: Sequence[Point], *, fresh: bool = False
    ) -> AsyncIterator[Mapping[Query, StoredParcel]]:
        """Yield what is stored for at most twenty points, then the responses of each request."""
        stored = {} if fresh else await self._load_points(points)
        yield stored
        missing = [point for point in points if point not in stored]
        if missing:
            assert len(missing) <= MAX_BATCH_POINTS
            async for responses in self._registry.fetch_all(missing, self._context):
                yield await self._save(responses)

    async def _load_points(self, points: Sequence[Point]) -> dict[Query, StoredParcel]:
        by_text = {format_query(point): point for point in points}
        params = {
            "questions": list(by_text),
            "lats": [point.lat for point in by_text.values()],
            "lons": [point.lon for point in by_text.values()],
        }
        rows = await self._store.read(load_query(_PACKAGE, "stored_points"), params | self._ages)
        stored: dict[Query, StoredParcel] = {}
        for text, feature, fetched_at, exact in rows:
            point = by_text[text]
            if point not in stored and (exact or _is_well_inside(point, feature)):
                stored[point] = StoredParcel(feature, fetched_at)
        return stored

    async def _load_number(self, number: ParcelNumber) -> StoredParcel | None:
        values = {"number": format_query(number), **self._ages}
        rows = await self._store.read(load_query(_PACKAGE, "stored_number"), values)
        return StoredParcel(*rows[0]) if rows else None

    async def _save(self, responses: Iterable[ParcelResponse]) -> dict[Query, StoredParcel]:
        features = {
            one.query: None if one.parcel is None else build_feature(one.parcel)
            for one in responses
        }
        by_text = {format_query(query): query for query in features}
        values = {
            "questions": list(by_text),
            "features": [one and Jsonb(one) for one in features.values()],
        }
        rows = await self._store.write(load_query(_PACKAGE, "save_responses"), values)
        return {
            by_text[text]: StoredParcel(features[by_text[text]], fetched_at)
            for text, fetched_at in rows
        }


def _is_well_inside(point: Point, feature: Mapping[str, Any]) -> bool:
    plane = Plane(point.lon, point.lat)
    ground = plane.to_metres(shape(feature["geometry"]))
    here = shapely.Point(0.0, 0.0)
    return bool(ground.contains(here) and ground.boundary.distance(here) >= _INSIDE_METRES)
