"""A scan of an area: how it asks, goes on after any interruption, and publishes what it finds.

Questions are asked in rounds: so many batches abreast, then all their answers are taken in, in the
order of the questions. So a scan's course depends on the answers alone, and whoever takes it up
again asks the planner for the same questions and finds those answered that were already paid for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from hasat.errors import HeldError, OutOfQuotaError, UnavailableError
from hasat.feed.guard import Counts, Limits
from hasat.fetch import Asker
from hasat.sources.tkgm.aims import Estimate, Forecast, Unknown
from hasat.sources.tkgm.asking import Registry, Told, spelled
from hasat.sources.tkgm.checking import Checking
from hasat.sources.tkgm.datasets import PARCELS
from hasat.sources.tkgm.features import key_text
from hasat.sources.tkgm.grid import GridPlanner
from hasat.sources.tkgm.keeping import ScanRecord
from hasat.sources.tkgm.planner import Planner
from hasat.sources.tkgm.publishing import publish
from hasat.sources.tkgm.questions import Answer, Empty, Number, Parcel, Point, Question
from hasat.sources.tkgm.wire import Registered
from hasat.sources.tkgm.wishes import Wish
from hasat.store import Store

_BATCH = 20
_PUBLISH_SECONDS = 3.0
_MOST_ABREAST = 6
# How long to wait for endpoints that fail, again and again, before a scan gives up.
_WAITS = (1.0, 2.0, 5.0, 10.0, 20.0)
# So few parcels that seem to be gone are believed, whatever their share.
_BELIEVED_GONE = 10
# A look at the budget takes a few queries; nobody watches more often.
_QUOTA_EVERY_SECONDS = 5.0


Removals = Literal["hold", "accept", "reject"]


@dataclass(frozen=True)
class Course:
    """How far a scan is. `checks` are questions about what was known when it began."""

    scan: int
    found: int
    asked: int
    known_before: int
    checks: int
    changes: Counts
    estimate: Estimate | None
    complete: bool
    per_second: float | None = None
    quota_left: int | None = None

    @property
    def expected(self) -> float | None:
        """How many parcels there will be."""
        return None if self.estimate is None else max(self.estimate.expected, float(self.found))

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at the pace so far, the quota permitting."""
        if self.estimate is None or not self.per_second:
            return None
        return self.estimate.questions_left / self.per_second


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
    tell: Callable[[Course], Awaitable[None]] | None = None
    foretell: Callable[[Forecast], Awaitable[None]] | None = None
    removals: Removals = "hold"

    asked: int = 0
    known_before: int = 0
    found: set[str] = field(default_factory=set)
    changes: Counts = field(default_factory=Counts)
    complete: bool = False
    _record: ScanRecord | None = None
    _planning: "_Planning | None" = None
    _unpublished: dict[str, Registered] = field(default_factory=dict)
    _began: float = 0.0
    _quota: tuple[float, int | None] = (float("-inf"), None)

    async def run(self) -> Course:
        """Ask until the area is complete, the wish's limit or the quota ends; then say how far."""
        record, planning = await self._take_up()
        clock, foretold = time.monotonic, False
        published = clock()
        while not self._is_over_limit():
            batches = await asyncio.to_thread(self._next_round, planning, record.abreast)
            if not batches:
                self.complete = True
                break
            await self._round(planning, batches)
            if not foretold and (forecast := self.forecast()) is not None:
                foretold = True
                if self.foretell is not None:
                    await self.foretell(forecast)
            if self.tell is not None:
                await self.tell(await self.course())
            if clock() - published >= _PUBLISH_SECONDS:
                await self._publish()
                published = clock()
        await self._publish()
        if self.complete:
            await self._remove()
        course = await self.course()
        if self.complete:
            await record.finish(self._result(course))
        return course

    async def look_ahead(self) -> Forecast | None:
        """Ask no more than the sample that tells what the scan will cost; it is not asked twice."""
        record, planning = await self._take_up()
        while self.forecast() is None:
            batches = await asyncio.to_thread(self._next_round, planning, record.abreast)
            if not batches:
                break
            await self._round(planning, batches)
        await self._publish()
        return self.forecast()

    def forecast(self) -> Forecast | None:
        """What the scan will cost, as soon as that can be said."""
        match self._planning:
            case Checking() as checking:
                return checking.forecast()
            case Planner() as planner:
                return planner.forecast()
        return None

    def unknown(self) -> list[Unknown]:
        """Where parcels may still hide; nowhere that a grid could tell."""
        planner = self._planner()
        return [] if planner is None else planner.unknown()

    async def course(self) -> Course:
        """How far it came, also when something ended it."""
        planner = self._planner()
        spent = time.monotonic() - self._began
        return Course(
            0 if self._record is None else self._record.id,
            len(self.found),
            self.asked,
            self.known_before,
            self._planning.checks if isinstance(self._planning, Checking) else 0,
            self.changes,
            None if planner is None else planner.estimate(),
            self.complete,
            self.asked / spent if self.asked and spent > 0 else None,
            await self._quota_left(),
        )

    async def _take_up(self) -> tuple[ScanRecord, _Planning]:
        """Go on with the scan of this wish that is not finished, or begin one."""
        self._began = time.monotonic()
        abreast = max(1, min(self.registry.endpoints, _MOST_ABREAST))
        age = self.registry.known_age
        record = await ScanRecord.take_up(self.store, self.wish, abreast=abreast, age=age)
        planning = await asyncio.to_thread(self._begin, record)
        self._record, self._planning = record, planning
        self.found = {key_text(one.parcel.key) for one in record.known.parcels if one.fresh}
        return record, planning

    def _begin(self, record: ScanRecord) -> _Planning:
        wish, by_number, known = self.wish, self.registry.by_number, record.known
        if wish.method == "grid":
            return GridPlanner(wish.area, wish.step, _BATCH)
        planner = Planner(wish.area, wish.quality, _BATCH, by_number, known.weights)
        if not known:
            return planner
        return Checking(planner, known.parcels, known.empty, batch=_BATCH, by_number=by_number)

    def _planner(self) -> Planner | None:
        match self._planning:
            case Checking(planner=planner):
                return planner
            case Planner() as planner:
                return planner
        return None

    def _is_over_limit(self) -> bool:
        most = self.wish.max_questions
        return most is not None and self.asked >= most

    @staticmethod
    def _next_round(planning: _Planning, abreast: int) -> list[list[Question]]:
        batches = []
        for _ in range(abreast):
            batch = planning.next_batch()
            if not batch:
                break
            batches.append(batch)
        return batches

    async def _round(self, planning: _Planning, batches: Sequence[list[Question]]) -> None:
        """Ask what is not known yet, and take all answers in, in the order of the questions."""
        asking = [asyncio.ensure_future(self._answers(batch)) for batch in batches]
        try:
            answers = await asyncio.gather(*asking)
        except (OutOfQuotaError, UnavailableError):
            # What the others are told is paid for: it is kept before the scan stops.
            await asyncio.gather(*asking, return_exceptions=True)
            await self._publish()
            raise

        def take_in() -> None:
            for batch, told in zip(batches, answers, strict=True):
                for question in batch:
                    parcel = told[spelled(question)]
                    planning.tell(question, _answer(parcel))
                    if parcel is not None:
                        self.found.add(key_text(parcel.key))

        await asyncio.to_thread(take_in)

    async def _answers(self, batch: Sequence[Question]) -> dict[str, Registered | None]:
        """The answers to a batch: those paid for earlier, and the others asked for now."""
        record = self._record
        assert record is not None
        known = await record.kept(batch)
        # A scan that died may have been told what it did not publish.
        self._note_unpublished(known.values())
        self.known_before += len(known)
        unknown = [one for one in batch if spelled(one) not in known]
        open_points = [one for one in unknown if isinstance(one, Point)]
        while open_points:
            told = await self._patiently(partial(self._ask, open_points))
            known |= await self._keep(record, told)
            answered = {one.question for one in told}
            open_points = [one for one in open_points if one not in answered]
        for one in unknown:
            if isinstance(one, Number):
                told = await self._patiently(partial(self._ask, [one]))
                known |= await self._keep(record, told)
        return known

    async def _keep(self, record: ScanRecord, told: Sequence[Told]) -> dict[str, Registered | None]:
        known = await record.keep(told)
        self._note_unpublished(known.values())
        self.asked += len(told)
        return known

    async def _ask(self, questions: Sequence[Question]) -> list[Told]:
        """One request; an endpoint may leave some of the points unanswered, but not all."""
        if isinstance(one := questions[0], Number):
            parcel = await self.registry.numbered(one.mahalle_id, one.ada, one.parsel, self.asker)
            return [Told(one, parcel)]
        points = [one for one in questions if isinstance(one, Point)]
        if not (told := await self.registry.some(points, self.asker)):
            raise UnavailableError("No point was answered.", remedy="Ask again later.")
        return told

    async def _patiently(self, ask: Callable[[], Awaitable[list[Told]]]) -> list[Told]:
        """Endpoints that fail for a moment are no reason to give up what may take hours."""
        for seconds in _WAITS:
            try:
                return await ask()
            except UnavailableError:
                await asyncio.sleep(seconds)
        return await ask()

    def _note_unpublished(self, parcels: Iterable[Registered | None]) -> None:
        self._unpublished |= {key_text(one.key): one for one in parcels if one is not None}

    def _gone(self) -> list[str]:
        """The parcels of the area that were known before and are no more.

        A point of its ground decides whether a parcel is of the area, so that one that reaches
        over the border belongs to one side only.
        """
        if not isinstance(self._planning, Checking):
            return []
        return sorted(
            key_text(one.key)
            for one in self._planning.gone()
            if key_text(one.key) not in self.found
            and self.wish.area.contains(one.geometry.representative_point())
        )

    async def _remove(self) -> None:
        """Take what is gone out of the mirror, unless it is so much that a person must decide."""
        gone = self._gone()
        known = len(self._record.known.parcels) if self._record is not None else 0
        limit = max(_BELIEVED_GONE, Limits().removed / 100 * known)
        if self.removals == "hold" and len(gone) > limit:
            self.complete = False
            raise HeldError(
                f"{len(gone)} of {known} parcels known before seem to be gone; none was removed.",
                remedy="Scan again with removals accept to remove them, or reject to keep them.",
            )
        if gone and self.removals != "reject":
            await self._publish(gone)

    async def _publish(self, gone: Sequence[str] = ()) -> None:
        """Bring what was told to the mirror."""
        version = await publish(self.store, self._unpublished, run=self.asker.run, gone=gone)
        self._unpublished = {}
        new, old = version.counts[PARCELS.name], self.changes
        self.changes = Counts(
            old.added + new.added, old.modified + new.modified, old.removed + new.removed
        )

    def _result(self, course: Course) -> dict[str, Any]:
        planner = self._planner()
        return {
            "found": course.found,
            "asked": course.asked,
            "estimate": None if course.estimate is None else vars(course.estimate),
            "weights": None if planner is None else planner.weights,
        }

    async def empty_points(self) -> list[Point]:
        """Where the scan was told that there is no parcel, or took that over."""
        return [] if self._record is None else await self._record.empty_points()

    async def _quota_left(self) -> int | None:
        """Questions that all endpoints together may still be asked today."""
        looked_at, left = self._quota
        if time.monotonic() - looked_at > _QUOTA_EVERY_SECONDS:
            left = await self.registry.quota_left(self.store)
            self._quota = (time.monotonic(), left)
        return left


def _answer(parcel: Registered | None) -> Answer:
    if parcel is None or parcel.geometry is None:
        return Empty()
    return Parcel(parcel.key, parcel.geometry)
