"""A scan of an area: what it wants, what it was told, and how it goes on after any interruption.

Questions are asked in rounds: so many batches abreast, then all their answers are taken in, in the
order of the questions. So a scan's course depends on the answers alone, and whoever takes it up
again asks the planner for the same questions and finds those answered that were already paid for.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import shapely
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from shapely import MultiPolygon, Polygon
from shapely.geometry import mapping

from hasat.errors import OutOfQuotaError, UnavailableError
from hasat.fetch import Asker
from hasat.sources.tkgm.asking import Registry, Told, spelled
from hasat.sources.tkgm.features import key_text
from hasat.sources.tkgm.grid import GridPlanner
from hasat.sources.tkgm.planner import Estimate, Planner, Quality
from hasat.sources.tkgm.publishing import Whole, publish
from hasat.sources.tkgm.questions import Answer, Empty, Number, Parcel, Point, Question
from hasat.sources.tkgm.wire import Registered, read_feature
from hasat.store import Store

_BATCH = 20
_PUBLISH_SECONDS = 3.0
_MOST_ABREAST = 6


@dataclass(frozen=True)
class Wish:
    """What is to be scanned, and how."""

    area: Polygon | MultiPolygon
    quality: Quality = "standard"
    method: Literal["coverage", "grid"] = "coverage"
    step: float = 20.0
    max_questions: int | None = None

    @property
    def how(self) -> dict[str, Any]:
        if self.method == "grid":
            return {"method": "grid", "step": self.step}
        return {"method": "coverage", "quality": self.quality}

    @property
    def mark(self) -> bytes:
        """The same for the same area asked for in the same way."""
        ground = shapely.to_wkb(shapely.normalize(shapely.set_precision(self.area, 1e-7)))
        return hashlib.sha256(ground + json.dumps(self.how).encode()).digest()


@dataclass(frozen=True)
class Course:
    """How far a scan is."""

    scan: int
    found: int
    asked: int
    known_before: int
    estimate: Estimate | None
    complete: bool


class _Planning(Protocol):
    def next_batch(self) -> list[Question]: ...
    def tell(self, question: Question, answer: Answer) -> None: ...


@dataclass
class Scan:
    """One scan on its way."""

    store: Store
    registry: Registry
    wish: Wish
    asker: Asker
    tell: Callable[[Course], None] | None = None

    id: int = 0
    asked: int = 0
    known_before: int = 0
    found: set[str] = field(default_factory=set)
    complete: bool = False
    _abreast: int = 1
    _unpublished: dict[str, Registered] = field(default_factory=dict)
    _planning: "_Planning | None" = None

    async def run(self) -> Course:
        """Ask until the area is complete, the wish's limit or the quota ends; then say how far."""
        await self._take_up()
        planner = self._planning = self._planner()
        clock = asyncio.get_running_loop().time
        published = clock()
        while not self._is_over_limit():
            batches = self._next_round(planner)
            if not batches:
                self.complete = True
                break
            await self._round(planner, batches)
            if self.tell is not None:
                self.tell(self.course(planner))
            if clock() - published >= _PUBLISH_SECONDS:
                await self._publish(whole=False)
                published = clock()
        await self._publish(whole=self.complete)
        course = self.course(planner)
        if self.complete:
            await self._finish(course)
        return course

    def last_course(self) -> Course:
        """How far it came, whatever ended it."""
        return self.course(self._planning or self._planner())

    def course(self, planner: _Planning) -> Course:
        estimate = planner.estimate() if isinstance(planner, Planner) else None
        return Course(
            self.id, len(self.found), self.asked, self.known_before, estimate, self.complete
        )

    def _planner(self) -> _Planning:
        if self.wish.method == "grid":
            return GridPlanner(self.wish.area, self.wish.step, _BATCH)
        return Planner(self.wish.area, self.wish.quality, _BATCH, self.registry.by_number)

    def _is_over_limit(self) -> bool:
        most = self.wish.max_questions
        return most is not None and self.asked >= most

    def _next_round(self, planner: _Planning) -> list[list[Question]]:
        batches = []
        for _ in range(self._abreast):
            batch = planner.next_batch()
            if not batch:
                break
            batches.append(batch)
        return batches

    async def _round(self, planner: _Planning, batches: Sequence[list[Question]]) -> None:
        """Ask what is not known yet, and take all answers in, in the order of the questions."""
        asking = [asyncio.ensure_future(self._answers(batch)) for batch in batches]
        try:
            answers = await asyncio.gather(*asking)
        except (OutOfQuotaError, UnavailableError):
            # What the others are told is paid for: it is kept before the scan stops.
            await asyncio.gather(*asking, return_exceptions=True)
            await self._publish(whole=False)
            raise
        for batch, told in zip(batches, answers, strict=True):
            for question in batch:
                parcel = told[spelled(question)]
                planner.tell(question, _answer(parcel))
                if parcel is not None:
                    self.found.add(key_text(parcel.key))

    async def _answers(self, batch: Sequence[Question]) -> dict[str, Registered | None]:
        """The answers to a batch: those paid for earlier, and the others asked for now."""
        known = await self._kept(batch)
        self.known_before += len(known)
        unknown = [one for one in batch if spelled(one) not in known]
        points = [one for one in unknown if isinstance(one, Point)]
        if points:
            known |= await self._keep(await self.registry.batch(points, self.asker))
        for one in unknown:
            if isinstance(one, Number):
                parcel = await self.registry.numbered(
                    one.mahalle_id, one.ada, one.parsel, self.asker
                )
                known |= await self._keep([Told(one, parcel)])
        self.asked += len(unknown)
        return known

    async def _kept(self, batch: Sequence[Question]) -> dict[str, Registered | None]:
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question, feature FROM tkgm.told WHERE scan = %s AND question = ANY (%s)",
                (self.id, [spelled(one) for one in batch]),
            )
            rows = await cursor.fetchall()
        known = {text: None if kept is None else read_feature(kept) for text, kept in rows}
        # A scan that died may have been told what it did not publish.
        self._note_unpublished(known.values())
        return known

    async def _keep(self, told: Sequence[Told]) -> dict[str, Registered | None]:
        """Written down and committed before it counts."""
        rows = [
            (
                self.id,
                spelled(one.question),
                None if one.parcel is None else key_text(one.parcel.key),
                None if one.parcel is None else Jsonb(_as_told(one.parcel)),
            )
            for one in told
        ]
        # In one order, so that two batches with a question in common cannot wait for each other.
        rows.sort(key=lambda row: row[1])
        async with self.store.connection() as conn, conn.cursor() as cursor:
            await cursor.executemany(
                "INSERT INTO tkgm.told (scan, question, key, feature) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                rows,
            )
        self._note_unpublished(one.parcel for one in told)
        return {spelled(one.question): one.parcel for one in told}

    def _note_unpublished(self, parcels: Iterable[Registered | None]) -> None:
        self._unpublished |= {key_text(one.key): one for one in parcels if one is not None}

    async def _take_up(self) -> None:
        """Go on with the scan of this wish that is not finished, or begin one."""
        async with self.store.connection() as conn:
            self.id, self._abreast = await self._row(conn)

    async def _row(self, conn: AsyncConnection[Any]) -> tuple[int, int]:
        abreast = max(1, min(self.registry.endpoints, _MOST_ABREAST))
        await conn.execute(
            "INSERT INTO tkgm.scan (wish, area, method, abreast) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (wish) WHERE finished_at IS NULL DO NOTHING",
            (self.wish.mark, Jsonb(mapping(self.wish.area)), Jsonb(self.wish.how), abreast),
        )
        cursor = await conn.execute(
            "SELECT id, abreast FROM tkgm.scan WHERE wish = %s AND finished_at IS NULL",
            [self.wish.mark],
        )
        row = await cursor.fetchone()
        assert row is not None
        return row[0], row[1]

    async def _publish(self, *, whole: bool) -> None:
        """Bring what was told to the mirror; a complete scan also says what is gone."""
        await publish(
            self.store,
            self._unpublished,
            run=self.asker.run,
            whole=Whole(self.wish.area, self.found) if whole else None,
        )
        self._unpublished = {}

    async def _finish(self, course: Course) -> None:
        estimate = None if course.estimate is None else vars(course.estimate)
        result = {"found": course.found, "asked": course.asked, "estimate": estimate}
        async with self.store.connection() as conn:
            await conn.execute(
                "UPDATE tkgm.scan SET finished_at = clock_timestamp(), result = %s WHERE id = %s",
                (Jsonb(result), self.id),
            )


def _answer(parcel: Registered | None) -> Answer:
    if parcel is None or parcel.geometry is None:
        return Empty()
    return Parcel(parcel.key, parcel.geometry, parcel.properties)


def _as_told(parcel: Registered) -> dict[str, Any]:
    """A parcel in the registry's form, to be read again."""
    geometry = None if parcel.geometry is None else mapping(parcel.geometry)
    return {"type": "Feature", "geometry": geometry, "properties": dict(parcel.properties)}
