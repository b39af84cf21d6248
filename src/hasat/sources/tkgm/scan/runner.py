"""A scan of an area: how it asks, goes on after any interruption, and publishes what it finds.

Questions are asked in rounds: so many batches abreast, then all their answers are taken in, in the
order of the questions. So a scan's course depends on the answers alone, and whoever takes it up
again asks the planner for the same questions and finds those answered that were already paid for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import structlog

from hasat.errors import BrokenAnswerError, HasatError, HeldError, OutOfQuotaError, UnavailableError
from hasat.feed.guard import Counts, Limits
from hasat.fetch import RequestContext
from hasat.jobs.runs import rate_per_second
from hasat.messages import msg
from hasat.sources.tkgm.features import key_text, publish
from hasat.sources.tkgm.registry.client import Registry, Told, spelled
from hasat.sources.tkgm.registry.endpoint_trust import Doubts
from hasat.sources.tkgm.registry.wire import Answer, Empty, Parcel, Point, Question, Registered
from hasat.sources.tkgm.scan.planner import GridPlanner, Planner
from hasat.sources.tkgm.scan.records import ScanRecord
from hasat.sources.tkgm.scan.rescan import Checking, inside_point
from hasat.sources.tkgm.scan.scan_request import Estimate, Forecast, Unknown, Wish
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store

_BATCH = 20
_PUBLISH_SECONDS = 3.0
_MOST_ABREAST = 6
# How long to wait for endpoints that fail, again and again, before a scan gives up.
_WAITS = (1.0, 2.0, 5.0, 10.0, 20.0)
_CONTROL_WAITS = (5.0, 10.0, 20.0, 40.0)
# So few parcels that seem to be gone are believed, whatever their share.
_BELIEVED_GONE = 10
# Who denies so many parcels that others have told is believed no more.
_CONTROLS = 2
# A scan stops when more responses than this, and more than half of all, cannot be read.
_MAX_UNREADABLE = 40
# A look at the budget takes a few queries; nobody watches more often.
_QUOTA_EVERY_SECONDS = 5.0


log = structlog.get_logger(__name__)

Removals = Literal["hold", "accept", "reject"]


@dataclass(frozen=True)
class Course:
    """How far a scan is.

    `checks` are questions about what was known when it began; `unanswered` are those that nobody
    could answer, and which it goes on without; `quarantined` are responses that cannot be read.
    """

    scan: int
    found: int
    asked: int
    known_before: int
    checks: int
    changes: Counts
    estimate: Estimate | None
    complete: bool
    unanswered: int = 0
    per_second: float | None = None
    quota_left: int | None = None
    quarantined: int = 0

    @property
    def questions(self) -> float | None:
        """How many there will be: parcels may all be known long before the ground is."""
        return None if self.estimate is None else self.asked + self.estimate.questions_left

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at the pace so far, the quota permitting."""
        if self.estimate is None or not self.per_second:
            return None
        return self.estimate.questions_left / self.per_second


class _Planning(Protocol):
    def next_batch(self) -> list[Question]: ...
    def tell(self, question: Question, answer: Answer) -> None: ...
    def pass_over(self, question: Question) -> None: ...


@dataclass
class Scan:
    """One scan on its way."""

    store: Store
    registry: Registry
    wish: Wish
    asker: RequestContext
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
    _doubts: Doubts = field(default_factory=Doubts)
    _began_anew: bool = False
    _paid: int = 0
    _unreadable: int = 0
    _unanswered: set[str] = field(default_factory=set)

    async def run(self) -> Course:
        """Ask until the area is complete, the wish's limit or the quota ends; then say how far."""
        record = await self._take_up()
        clock, foretold = time.monotonic, False
        published = clock()
        while True:
            batches = await asyncio.to_thread(self._next_round, record.abreast)
            if not batches:
                await self._stop_if_unreadable(record)
                self.complete = True
                break
            if not await self._round(record, batches):
                break
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
        record = await self._take_up()
        while self.forecast() is None:
            batches = await asyncio.to_thread(self._next_round, record.abreast)
            if not batches or not await self._round(record, batches):
                break
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
            len(self._unanswered),
            rate_per_second(self.asked, spent),
            await self._quota_left(),
            self.registry.quarantined,
        )

    async def _take_up(self) -> ScanRecord:
        """Go on with the scan of this wish that is not finished, or begin one."""
        self._began = time.monotonic()
        abreast = max(1, min(self.registry.endpoints, _MOST_ABREAST))
        age = self.registry.known_age
        record = await ScanRecord.take_up(self.store, self.wish, abreast=abreast, age=age)
        self._record, self._planning = record, await asyncio.to_thread(self._begin, record)
        self._unanswered = await record.unanswered()
        self.found = {key_text(one.parcel.key) for one in record.known.parcels if one.fresh}
        return record

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

    def _pay(self, wanted: int) -> int:
        """How many of the questions wanted the wish's limit allows; they count as asked."""
        most = self.wish.max_questions
        allowed = wanted if most is None else min(wanted, most - self._paid)
        self._paid += allowed
        return allowed

    def _next_round(self, abreast: int) -> list[list[Question]]:
        assert self._planning is not None
        batches = []
        for _ in range(abreast):
            batch = self._planning.next_batch()
            if not batch:
                break
            batches.append(batch)
        return batches

    async def _round(self, record: ScanRecord, batches: Sequence[list[Question]]) -> bool:
        """Ask what is not known yet, and take all answers in, in the order of the questions.

        False if the limit ended it before: what was told is kept, but a round counts as a whole.
        """
        asking = [asyncio.ensure_future(self._answers(record, batch)) for batch in batches]
        try:
            answers = await asyncio.gather(*asking)
        except (OutOfQuotaError, UnavailableError, BrokenAnswerError):
            # What the others are told is paid for: it is kept before the scan stops.
            await asyncio.gather(*asking, return_exceptions=True)
            await self._publish()
            raise
        if lies := await self._lies():
            # Over what is left the planner comes to where it would be without them.
            await record.forget(lies)
            self._planning = await asyncio.to_thread(self._begin, record)
            self._began_anew = True
            return True
        told = {text: parcel for some in answers for text, parcel in some.items()}
        asked = [question for batch in batches for question in batch]
        if not told.keys() | self._unanswered >= {spelled(question) for question in asked}:
            return False
        planning = self._planning
        assert planning is not None

        def take_in() -> None:
            for question in asked:
                if (text := spelled(question)) in told:
                    planning.tell(question, _answer(told[text]))
                else:
                    planning.pass_over(question)

        await asyncio.to_thread(take_in)
        return True

    async def _lies(self) -> list[str]:
        """What endpoints that deny parcels have told this scan; they are asked no more."""
        lies: list[str] = []
        for endpoint in self._doubts.raised():
            if await self._is_lying(endpoint):
                log.warning(
                    "An endpoint says that there is nothing where others find a parcel. This scan "
                    "believes none of its empty answers and asks it no more.",
                    endpoint=endpoint,
                )
                self.registry.set_aside(endpoint)
                lies += self._doubts.denied(endpoint)
        return lies

    async def _is_lying(self, endpoint: str) -> bool:
        for _ in range(_CONTROLS):
            ground = self._doubts.control(endpoint)
            if ground is None or not self._pay(1):
                return False
            try:
                told = await self.registry.told(inside_point(ground), self.asker, only=endpoint)
            except HasatError:
                # Who cannot be asked now cannot be accused.
                return False
            self.asked += 1
            if told.parcel is not None:
                return False
        return True

    async def _answers(
        self, record: ScanRecord, batch: Sequence[Question]
    ) -> dict[str, Registered | None]:
        """The answers to a batch: those paid for earlier, and the others asked for now."""
        known = await record.kept(batch)
        # A scan that died may have been told what it did not publish.
        self._note(known.values())
        self.known_before += 0 if self._began_anew else len(known)
        unknown = [one for one in batch if spelled(one) not in known.keys() | self._unanswered]
        asked = unknown[: self._pay(len(unknown))]
        try:
            async for told in self.registry.answers(asked, self.asker, _WAITS):
                known |= await self._keep(record, told)
        except BrokenAnswerError:
            await self._pass_over_unreadable(record, asked)
        except UnavailableError:
            await self._pass_over_unreadable(record, asked)
            left = [one for one in asked if spelled(one) not in known.keys() | self._unanswered]
            control = await record.an_answered_one()
            if control is None or len(left) == len(batch):
                raise
            for question in left[: self._pay(len(left))]:
                known |= await self._alone(record, question, control)
        return known

    async def _pass_over_unreadable(self, record: ScanRecord, asked: Sequence[Question]) -> None:
        """Go on without what cannot be read, unless that is most of what the endpoints send."""
        for question in filter(self.registry.is_unreadable, asked):
            log.warning("scan.response_unreadable", question=spelled(question))
            await record.pass_over(question)
            self._unanswered.add(spelled(question))
            self._unreadable += 1
        if self._unreadable > _MAX_UNREADABLE:
            await self._stop_if_unreadable(record)

    async def _stop_if_unreadable(self, record: ScanRecord) -> None:
        """Raise BrokenAnswerError if fewer responses could be read than not."""
        if self._unreadable > self.asked + self.known_before:
            # When the endpoints are repaired, the scan goes on with these questions.
            await record.forget_unanswered()
            raise BrokenAnswerError(
                msg(
                    "The responses to {unreadable} of {count} questions cannot be read.",
                    unreadable=self._unreadable,
                    count=self._unreadable + self.asked,
                ),
                remedy=msg(
                    "See raw.set_aside for what the endpoints send, and start the scan again "
                    "when they are repaired; what was read is stored."
                ),
            )

    async def _alone(
        self, record: ScanRecord, question: Question, control: Question
    ) -> dict[str, Registered | None]:
        """The answer to a question that was left without; nothing if that is its own fault.

        A point on which everybody fails must not keep the rest of an area unknown for ever.
        """
        # Those who failed rest for a while. If nobody answers this either, it is not the question.
        async for told in self.registry.answers([control], self.asker, _CONTROL_WAITS):
            self.asked += len(told)
        try:
            if told := await self.registry.some([question], self.asker):
                return await self._keep(record, told)
        except (UnavailableError, BrokenAnswerError) as error:
            log.info("a question was asked alone in vain", reason=error.message)
        log.warning(
            "No endpoint answers a question while others are answered. This scan goes on without.",
            question=spelled(question),
        )
        await record.pass_over(question)
        self._unanswered.add(spelled(question))
        return {}

    async def _keep(self, record: ScanRecord, told: Sequence[Told]) -> dict[str, Registered | None]:
        """What was told, kept before it counts."""
        fresh = await record.keep(told)
        self._note(fresh.values())
        self._doubts.note(told)
        self.asked += len(told)
        return fresh

    def _note(self, parcels: Iterable[Registered | None]) -> None:
        told = {key_text(one.key): one for one in parcels if one is not None}
        self._unpublished |= told
        self.found |= told.keys()

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
                msg(
                    "{count} of {known} parcels known before seem to be gone; none was removed.",
                    count=len(gone),
                    known=known,
                ),
                remedy=msg(
                    "Scan again with removals accept to remove them, or reject to keep them."
                ),
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
            # What an attempt before this one asked was asked for this scan too.
            "asked": course.asked + course.known_before,
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
