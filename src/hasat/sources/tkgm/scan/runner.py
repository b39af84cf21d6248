"""Run a scan: send queries, resume after any interruption, and publish the parcels found.

Queries are sent in rounds: several batches at once, then all responses are recorded in the order
of the queries. So the course of a scan depends on the responses alone, and a resumed scan gets the
same queries from the planner and reuses the responses that were already paid for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from hasat.errors import BrokenAnswerError, HasatError, OutOfQuotaError, UnavailableError
from hasat.feed.guard import Counts
from hasat.feed.holds import GuardError
from hasat.feed.reconcile import Version
from hasat.fetch import RequestContext
from hasat.jobs.runs import rate_per_second
from hasat.messages import msg
from hasat.sources.tkgm.features import format_key, publish_parcels, remove_parcels
from hasat.sources.tkgm.registry.client import ParcelResponse, RegistryClient
from hasat.sources.tkgm.registry.endpoint_trust import EndpointTrust
from hasat.sources.tkgm.registry.wire import Parcel, Point, Query, format_query
from hasat.sources.tkgm.scan.candidates import UnknownArea
from hasat.sources.tkgm.scan.numbering import Block
from hasat.sources.tkgm.scan.planner import GridPlanner, Planner, QueryPlanner
from hasat.sources.tkgm.scan.progress import Forecast, ScanProgress, ScanRequest
from hasat.sources.tkgm.scan.records import ScanRecord
from hasat.sources.tkgm.scan.rescan import RescanPlanner
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store

_BATCH = 20
_MAX_CONCURRENCY = 6
_PUBLISH_SECONDS = 3.0
# Waits for failing endpoints before a scan stops.
_WAITS = (1.0, 2.0, 5.0, 10.0, 20.0)
_CONTROL_WAITS = (5.0, 10.0, 20.0, 40.0)
# An endpoint that finds nothing at this many points where others find a parcel is excluded.
_CONTROLS = 2
# A scan stops when more responses than this, and more than half of all, cannot be read.
_MAX_UNREADABLE = 40
# Reading the budget takes several statements.
_QUOTA_SECONDS = 5.0


log = structlog.get_logger(__name__)


@dataclass
class Scan:
    """One scan in progress."""

    store: Store
    registry: RegistryClient
    request: ScanRequest
    context: RequestContext
    on_progress: Callable[[ScanProgress], Awaitable[None]] | None = None
    on_forecast: Callable[[Forecast], Awaitable[None]] | None = None

    queries: int = 0
    known_before: int = 0
    found: set[str] = field(default_factory=set)
    changes: Counts = field(default_factory=Counts)
    complete: bool = False
    _record: ScanRecord | None = None
    _planner: QueryPlanner | None = None
    _unpublished: dict[str, Parcel] = field(default_factory=dict)
    _started: float = 0.0
    _quota: tuple[float, int | None] = (float("-inf"), None)
    _trust: EndpointTrust = field(default_factory=EndpointTrust)
    _restarted: bool = False
    _paid: int = 0
    _unreadable: int = 0
    _skipped: set[str] = field(default_factory=set)

    async def run(self) -> ScanProgress:
        """Query until the area is complete, or the request's limit or the quota is reached."""
        record = await self._open()
        clock, forecast_sent = time.monotonic, False
        published = clock()
        while True:
            batches = await asyncio.to_thread(self._next_round, record.concurrency)
            if not batches:
                await self._stop_if_unreadable(record)
                self.complete = True
                break
            if not await self._round(record, batches):
                break
            if not forecast_sent and (forecast := self.forecast()) is not None:
                forecast_sent = True
                if self.on_forecast is not None:
                    await self.on_forecast(forecast)
            if self.on_progress is not None:
                await self.on_progress(await self.progress())
            if clock() - published >= _PUBLISH_SECONDS:
                await self._publish()
                published = clock()
        await self._publish()
        held: GuardError | None = None
        if self.complete:
            try:
                await self._remove_gone()
            except GuardError as error:
                held = error
        progress = await self.progress()
        if self.complete:
            await record.finish(self._result(progress))
        if held is not None:
            # The scan is finished: the next one sends these queries again.
            raise held
        return progress

    async def run_sample(self) -> Forecast | None:
        """Query only the sample that forecasts the scan; `run` reuses its responses."""
        record = await self._open()
        while self.forecast() is None:
            batches = await asyncio.to_thread(self._next_round, record.concurrency)
            if not batches or not await self._round(record, batches):
                break
        await self._publish()
        return self.forecast()

    def forecast(self) -> Forecast | None:
        """Return the forecast of the scan, once there is one."""
        if isinstance(self._planner, RescanPlanner | Planner):
            return self._planner.forecast()
        return None

    def unknown_areas(self) -> list[UnknownArea]:
        """Return the areas that may still hold parcels; none for a grid."""
        planner = self._coverage_planner()
        if planner is None:
            return []
        numbers = [UnknownArea(one.place, None, one.text) for one in planner.missing_numbers()]
        return [*planner.unknown_areas(), *numbers]

    def missing_numbers(self) -> list[dict[str, Any]]:
        """Return the numbers never seen between known ones, by block."""
        planner = self._coverage_planner()
        blocks: dict[Block, list[int]] = {}
        for one in () if planner is None else planner.missing_numbers():
            blocks.setdefault(one.block, []).extend(one.numbers)
        return [
            {"mahalleId": mahalle, "adaNo": ada, "numbers": numbers}
            for (mahalle, ada), numbers in sorted(blocks.items())
        ]

    async def empty_points(self) -> list[Point]:
        """Return the points without a parcel."""
        return [] if self._record is None else await self._record.empty_points()

    async def progress(self) -> ScanProgress:
        """Return the progress, also after an error."""
        planner = self._coverage_planner()
        seconds = time.monotonic() - self._started
        return ScanProgress(
            0 if self._record is None else self._record.id,
            len(self.found),
            self.queries,
            self.known_before,
            self._planner.checks if isinstance(self._planner, RescanPlanner) else 0,
            self.changes,
            None if planner is None else planner.estimate(),
            self.complete,
            None if planner is None else planner.completeness(),
            self.forecast(),
            len(self._skipped),
            rate_per_second(self.queries, seconds),
            await self._quota_left(),
            self.registry.quarantined,
        )

    async def _open(self) -> ScanRecord:
        """Resume the unfinished scan of the request, or start one."""
        self._started = time.monotonic()
        record = await ScanRecord.open(
            self.store,
            self.request,
            concurrency=max(1, min(self.registry.endpoints, _MAX_CONCURRENCY)),
            age=self.registry.parcel_age,
        )
        self._record, self._planner = record, await asyncio.to_thread(self._build_planner, record)
        self._skipped = await record.load_skipped()
        self.found = {format_key(one.key) for one in record.known.parcels if one.fresh}
        return record

    def _build_planner(self, record: ScanRecord) -> QueryPlanner:
        request, by_number, known = self.request, self.registry.by_number, record.known
        if request.method == "grid":
            return GridPlanner(request.area, request.step, _BATCH)
        planner = Planner(request.area, request.quality, _BATCH, by_number, known.weights)
        if not known:
            return planner
        return RescanPlanner(planner, known.parcels, known.empty, batch=_BATCH, by_number=by_number)

    def _coverage_planner(self) -> Planner | None:
        match self._planner:
            case RescanPlanner(planner=planner):
                return planner
            case Planner() as planner:
                return planner
        return None

    def _pay(self, wanted: int) -> int:
        """Return how many queries the request's limit allows, and count them."""
        limit = self.request.max_queries
        allowed = wanted if limit is None else min(wanted, limit - self._paid)
        self._paid += allowed
        return allowed

    def _next_round(self, concurrency: int) -> list[list[Query]]:
        assert self._planner is not None
        batches = []
        for _ in range(concurrency):
            batch = self._planner.next_batch()
            if not batch:
                break
            batches.append(batch)
        return batches

    async def _round(self, record: ScanRecord, batches: Sequence[list[Query]]) -> bool:
        """Send the queries without a stored response, and record all responses in order.

        Return False if the limit was reached: the responses are stored, but only a whole round
        is recorded in the planner.
        """
        tasks = [asyncio.ensure_future(self._responses(record, batch)) for batch in batches]
        try:
            parts = await asyncio.gather(*tasks)
        except (OutOfQuotaError, UnavailableError, BrokenAnswerError):
            # The responses of the other batches are paid for: store them before stopping.
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._publish()
            raise
        if untrusted := await self._untrusted_queries():
            # A new planner gets to where it would be without these responses.
            await record.delete_responses(untrusted)
            self._planner = await asyncio.to_thread(self._build_planner, record)
            self._restarted = True
            return True
        responses = {text: parcel for part in parts for text, parcel in part.items()}
        queries = [query for batch in batches for query in batch]
        if not responses.keys() | self._skipped >= {format_query(query) for query in queries}:
            return False
        planner = self._planner
        assert planner is not None

        def record_responses() -> None:
            for query in queries:
                if (text := format_query(query)) in responses:
                    planner.record(query, _outline_only(responses[text]))
                else:
                    planner.skip(query)

        await asyncio.to_thread(record_responses)
        return True

    async def _untrusted_queries(self) -> list[str]:
        """Exclude endpoints that miss parcels, and return the queries they found nothing for."""
        untrusted: list[str] = []
        for endpoint in self._trust.take_suspects():
            if await self._misses_parcels(endpoint):
                log.warning("scan.endpoint_excluded", endpoint=endpoint, reason="misses parcels")
                self.registry.exclude(endpoint)
                untrusted += self._trust.take_empty(endpoint)
        return untrusted

    async def _misses_parcels(self, endpoint: str) -> bool:
        for _ in range(_CONTROLS):
            control = self._trust.take_control(endpoint)
            if control is None or not self._pay(1):
                return False
            try:
                response = await self.registry.fetch_one(control, self.context, only=endpoint)
            except HasatError:
                # Without a response there is no evidence.
                return False
            self.queries += 1
            if response.parcel is not None:
                return False
        return True

    async def _responses(
        self, record: ScanRecord, batch: Sequence[Query]
    ) -> dict[str, Parcel | None]:
        """Return the responses to a batch: the stored ones, and those received now."""
        known = await record.load_responses(batch)
        # A scan that crashed may have stored parcels that it did not publish.
        self._note(known.values())
        self.known_before += 0 if self._restarted else len(known)
        unknown = [one for one in batch if format_query(one) not in known.keys() | self._skipped]
        sent = unknown[: self._pay(len(unknown))]
        try:
            async for responses in self.registry.fetch_all(sent, self.context, _WAITS):
                known |= await self._save(record, responses)
        except BrokenAnswerError:
            await self._skip_unreadable(record, sent)
        except UnavailableError:
            await self._skip_unreadable(record, sent)
            left = [one for one in sent if format_query(one) not in known.keys() | self._skipped]
            control = await record.latest_hit()
            if control is None or len(left) == len(batch):
                raise
            for query in left[: self._pay(len(left))]:
                known |= await self._retry_or_skip(record, query, control)
        return known

    async def _skip_unreadable(self, record: ScanRecord, queries: Sequence[Query]) -> None:
        """Skip queries whose responses cannot be read, unless most responses are like that."""
        for query in filter(self.registry.is_unreadable, queries):
            log.warning("scan.response_unreadable", query=format_query(query))
            await record.skip(query)
            self._skipped.add(format_query(query))
            self._unreadable += 1
        if self._unreadable > _MAX_UNREADABLE:
            await self._stop_if_unreadable(record)

    async def _stop_if_unreadable(self, record: ScanRecord) -> None:
        """Raise BrokenAnswerError if fewer responses could be read than not."""
        if self._unreadable > self.queries + self.known_before:
            # When the endpoints are repaired, the scan continues with these queries.
            await record.delete_skipped()
            raise BrokenAnswerError(
                msg(
                    "The responses to {unreadable} of {count} queries cannot be read.",
                    unreadable=self._unreadable,
                    count=self._unreadable + self.queries,
                ),
                remedy=msg(
                    "See raw.set_aside for what the endpoints send, and start the scan again "
                    "when they are repaired; what was read is stored."
                ),
            )

    async def _retry_or_skip(
        self, record: ScanRecord, query: Query, control: Query
    ) -> dict[str, Parcel | None]:
        """Retry a query alone, and skip it if only this query fails.

        A point on which all endpoints fail must not leave the rest of an area unknown.
        """
        # Endpoints that failed are cooling down. If this raises, the query is not the cause.
        async for responses in self.registry.fetch_all([control], self.context, _CONTROL_WAITS):
            self.queries += len(responses)
        try:
            if responses := await self.registry.fetch_batch([query], self.context):
                return await self._save(record, responses)
        except (UnavailableError, BrokenAnswerError) as error:
            log.info("scan.retry_failed", query=format_query(query), reason=error.message)
        log.warning("scan.query_skipped", query=format_query(query), reason="no endpoint responds")
        await record.skip(query)
        self._skipped.add(format_query(query))
        return {}

    async def _save(
        self, record: ScanRecord, responses: Sequence[ParcelResponse]
    ) -> dict[str, Parcel | None]:
        """Store responses before they count."""
        saved = await record.save_responses(responses)
        self._note(saved.values())
        self._trust.record(responses)
        self.queries += len(responses)
        return saved

    def _note(self, parcels: Iterable[Parcel | None]) -> None:
        found = {format_key(one.key): one for one in parcels if one is not None}
        self._unpublished |= found
        self.found |= found.keys()

    def _gone(self) -> list[str]:
        """Return the keys of the area's known parcels that do not exist any more.

        A point inside a parcel decides whether it belongs to the area, so that a parcel on the
        border belongs to one side only.
        """
        if not isinstance(self._planner, RescanPlanner):
            return []
        return sorted(
            format_key(one.key)
            for one in self._planner.gone()
            if format_key(one.key) not in self.found
            and self.request.area.contains(one.outline.representative_point())
        )

    async def _remove_gone(self) -> None:
        """Remove parcels that are gone from the mirror; hold the scan if they are too many."""
        known = len(self._record.known.parcels) if self._record is not None else 0
        if gone := self._gone():
            self._count(await remove_parcels(self.store, gone, run=self.context.run, known=known))

    async def _publish(self) -> None:
        """Write the new parcels to the mirror."""
        self._count(await publish_parcels(self.store, self._unpublished, run=self.context.run))
        self._unpublished = {}

    def _count(self, version: Version) -> None:
        new, old = version.counts[PARCELS.name], self.changes
        self.changes = Counts(
            old.added + new.added, old.modified + new.modified, old.removed + new.removed
        )

    def _result(self, progress: ScanProgress) -> dict[str, Any]:
        planner = self._coverage_planner()
        return {
            "found": progress.found,
            # Including the queries of attempts before this one.
            "asked": progress.queries + progress.known_before,
            "estimate": None if progress.estimate is None else vars(progress.estimate),
            "completeness": progress.completeness,
            "missingNumbers": self.missing_numbers(),
            "weights": None if planner is None else planner.weights,
        }

    async def _quota_left(self) -> int | None:
        """Return how many queries all endpoints together have left today."""
        read_at, left = self._quota
        if time.monotonic() - read_at > _QUOTA_SECONDS:
            left = await self.registry.quota_left(self.store)
            self._quota = (time.monotonic(), left)
        return left


def _outline_only(parcel: Parcel | None) -> Parcel | None:
    """Return a parcel without its properties, which the planner does not need in memory."""
    if parcel is None or parcel.geometry is None:
        return None
    return Parcel(parcel.key, parcel.geometry)
