"""Single questions: answered from what was told lately, asked of the registry otherwise."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import shapely
from psycopg.types.json import Jsonb
from shapely.geometry import shape

from hasat.errors import UsageError
from hasat.fetch import RequestContext
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.features import feature_of
from hasat.sources.tkgm.geometry import Plane
from hasat.sources.tkgm.registry.client import MOST_AT_ONCE, Registry, Told, spelled
from hasat.sources.tkgm.registry.wire import Number, Point, Question
from hasat.store import Store
from hasat.store.queries import load_query

# Outlines are told in steps of about a metre: nearer to an edge, the neighbour may have the ground.
_SURELY_INSIDE_METRES = 1.5


@dataclass(frozen=True)
class Known:
    """The registry's word on a question and when it was given; no feature means no parcel."""

    feature: Mapping[str, Any] | None
    told_at: datetime

    @property
    def fetched_at(self) -> datetime:
        """The time in UTC, whatever zone the database speaks in."""
        return self.told_at.astimezone(UTC)

    def dated(self) -> dict[str, Any] | None:
        """The published form with its date among the properties."""
        if self.feature is None:
            return None
        properties = {**self.feature["properties"], "fetchedAt": self.fetched_at.isoformat()}
        return {**self.feature, "properties": properties}


def point_at(lat: float, lon: float) -> Point:
    """A point on the earth, or a sentence that says why it is none."""
    # Also false for what is not a number.
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):
        raise UsageError(
            msg(
                "{lat}, {lon} is not a place: latitude comes first and is from -90 to "
                "90, longitude from -180 to 180.",
                lat=lat,
                lon=lon,
            )
        )
    return Point(float(lat), float(lon))


class Lookup:
    """The registry, not asked again for what it said lately; `fresh` asks anyway."""

    def __init__(
        self, store: Store, settings: Settings, registry: Registry, asker: RequestContext
    ) -> None:
        self._store = store
        self._registry = registry
        self._asker = asker
        self._ages = {
            "parcel_age": settings.tkgm.parcel_age,
            "not_found_age": settings.tkgm.not_found_age,
        }

    async def forget(self) -> None:
        """Let go of what is too old to be used again."""
        async with self._store.connection() as conn:
            await conn.execute(load_query("hasat.sources.tkgm", "forget_answers"), self._ages)

    async def at(self, point: Point, *, fresh: bool = False) -> Known:
        """The parcel at a point."""
        if not fresh and (known := await self._known_points([point])):
            return known[point]
        return (await self._keep([await self._registry.told(point, self._asker)]))[point]

    async def numbered(self, number: Number, *, fresh: bool = False) -> Known:
        """The parcel of a number."""
        if not fresh and (known := await self._known_number(number)):
            return known
        return (await self._keep([await self._registry.told(number, self._asker)]))[number]

    async def each(
        self, points: Sequence[Point], *, fresh: bool = False
    ) -> AsyncIterator[Mapping[Question, Known]]:
        """At most twenty points: what is known of them, then what each request was told."""
        known = {} if fresh else await self._known_points(points)
        yield known
        unknown = [point for point in points if point not in known]
        if unknown:
            assert len(unknown) <= MOST_AT_ONCE
            async for told in self._registry.answers(unknown, self._asker):
                yield await self._keep(told)

    async def _known_points(self, points: Sequence[Point]) -> dict[Question, Known]:
        by_text = {spelled(point): point for point in points}
        places = {
            "questions": list(by_text),
            "lats": [point.lat for point in by_text.values()],
            "lons": [point.lon for point in by_text.values()],
        }
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                load_query("hasat.sources.tkgm", "points_known"), places | self._ages
            )
            rows = await cursor.fetchall()
        known: dict[Question, Known] = {}
        for text, feature, told_at, exact in rows:
            point = by_text[text]
            if point not in known and (exact or _is_surely_inside(point, feature)):
                known[point] = Known(feature, told_at)
        return known

    async def _known_number(self, number: Number) -> Known | None:
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                load_query("hasat.sources.tkgm", "number_known"),
                {"number": spelled(number), **self._ages},
            )
            row = await cursor.fetchone()
        return None if row is None else Known(*row)

    async def _keep(self, told: Iterable[Told]) -> dict[Question, Known]:
        features = {
            one.question: None if one.parcel is None else feature_of(one.parcel) for one in told
        }
        by_text = {spelled(question): question for question in features}
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                load_query("hasat.sources.tkgm", "keep_answers"),
                {
                    "questions": list(by_text),
                    "features": [one and Jsonb(one) for one in features.values()],
                },
            )
            rows = await cursor.fetchall()
        return {by_text[text]: Known(features[by_text[text]], told_at) for text, told_at in rows}


def _is_surely_inside(point: Point, feature: Mapping[str, Any]) -> bool:
    plane = Plane(point.lon, point.lat)
    ground = plane.to_metres(shape(feature["geometry"]))
    here = shapely.Point(0.0, 0.0)
    return bool(ground.contains(here) and ground.boundary.distance(here) >= _SURELY_INSIDE_METRES)
