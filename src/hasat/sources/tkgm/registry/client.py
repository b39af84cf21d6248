"""Asking the registry over the pool of endpoints: points in batches, numbers one by one."""

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hasat.budget import Budget, Remaining, Waiting, keep_slot, read_quotas
from hasat.errors import BrokenAnswerError, OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch import (
    Client,
    ClientOptions,
    EndpointPool,
    Fetcher,
    FetchResult,
    HedgedFetcher,
    Outcome,
    Request,
    RequestContext,
    read_workers,
)
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources import upstreams
from hasat.sources.tkgm.registry.outcomes import classify
from hasat.sources.tkgm.registry.wire import (
    Number,
    Point,
    Question,
    Registered,
    check_location,
    parse_object,
    read_feature,
)
from hasat.store import Store
from hasat.store.quarantine import Aside, keep_aside

MOST_AT_ONCE = 20
# A point that is left unanswered so often is not asked for ever.
_MOST_TRIES = 6
# A question whose response cannot be read so often is not asked again.
_MAX_UNREADABLE = 3


# The question (none for a whole batch), why its response cannot be read, and the response.
Unreadable = tuple[Question | None, str, bytes]


@dataclass(frozen=True)
class Told:
    """The registry's word on a question: the parcel, or that there is none; and by whom."""

    question: Question
    parcel: Registered | None
    endpoint: str = ""


class Registry:
    """The registry, as far as its endpoints let it be asked today.

    An answer without a parcel's key is broken, unless it is not `keyed`.
    """

    def __init__(
        self,
        store: Store,
        racer: HedgedFetcher,
        pool: EndpointPool,
        settings: Settings,
        *,
        keyed: bool = True,
        waiting: Waiting = keep_slot,
    ) -> None:
        self._store = store
        self._racer = racer
        self._pool = pool
        self._tkgm = settings.tkgm
        self._urls = {one.endpoint.url for one in pool.states}
        self.endpoints = len(pool.states)
        self.by_number = any(one.endpoint.by_number for one in pool.states)
        self.known_age = settings.tkgm.parcel_age
        self.requests = 0
        self.quarantined = 0
        self._unreadable = Counter[Question]()
        self._keyed = keyed
        self._waiting = waiting

    async def told(
        self, question: Question, asker: RequestContext, *, only: str | None = None
    ) -> Told:
        """The parcel at a point or of a number; `only` names the endpoint to be asked."""
        request = _single(question, self._tkgm.single_timeout.total_seconds())
        fetched = await self._ask(request, asker, only)
        try:
            return Told(question, self._read(fetched, question), fetched.endpoint)
        except BrokenAnswerError as error:
            await self._quarantine(fetched, asker, [(question, error.message, fetched.body)])
            raise

    def is_unreadable(self, question: Question) -> bool:
        """Whether the responses to a question could not be read, again and again."""
        return self._unreadable[question] >= _MAX_UNREADABLE

    async def quota_left(self, store: Store) -> int | None:
        """How many questions its endpoints may still be asked today; None before the first."""
        uses = [one for quota in await read_quotas(store, "tkgm") for one in quota.endpoints]
        left = [
            0 if one.exhausted_at is not None else max(0, one.day_limit - one.spent)
            for one in uses
            if one.name in self._urls and one.day_limit is not None
        ]
        return sum(left) if left else None

    def set_aside(self, endpoint: str) -> None:
        """Asks an endpoint no more, as long as this registry is open."""
        self._pool.exclude(endpoint)
        self._urls.discard(endpoint)

    async def answers(
        self, questions: Sequence[Question], asker: RequestContext, waits: Sequence[float] = ()
    ) -> AsyncIterator[list[Told]]:
        """What is told of up to twenty points and any numbers, request by request, so that the
        caller can keep it whatever comes; only what is left unanswered is asked again.

        Points about which nothing is said are divided, so that one bad point spoils no other; if
        they are more than what any endpoint has left today, fewer are asked at once. Where no
        endpoint answers it is asked again after each of the `waits`, in seconds.

        Raises UnavailableError at the end if questions were left unanswered, BrokenAnswerError if
        responses could not be read (`is_unreadable` says which).
        """
        points = [one for one in questions if isinstance(one, Point)]
        waiting: deque[list[Question]] = deque([[*points]] if points else [])
        waiting.extend([one] for one in questions if isinstance(one, Number))
        pauses, tries = iter(waits), Counter[Question]()
        most_tries, given_up = _MOST_TRIES + len(waits), 0
        while waiting:
            batch = waiting.popleft()
            try:
                told = await self.some(batch, asker)
            except OutOfQuotaError:
                most = self._pool.max_remaining()
                if not 0 < most < len(batch):
                    raise
                waiting.extendleft((batch[most:], batch[:most]))
                continue
            except UnavailableError:
                pause = next(pauses, None)
                if pause is None:
                    raise
                async with self._waiting(pause):
                    await asyncio.sleep(pause)
                waiting.appendleft(batch)
                continue
            if told:
                pauses = iter(waits)
                yield told
            else:
                pause = next(pauses, 0.0)
                async with self._waiting(pause):
                    await asyncio.sleep(pause)
            done = {one.question for one in told}
            left = [one for one in batch if one not in done]
            tries.update(left)
            readable = [one for one in left if not self.is_unreadable(one)]
            again = [one for one in readable if tries[one] < most_tries]
            given_up += len(readable) - len(again)
            half = len(again) if told else (len(again) + 1) // 2
            waiting.extend(part for part in (again[:half], again[half:]) if part)
        if given_up:
            raise UnavailableError(
                msg(
                    "{given_up} of {count} points were left unanswered {most_tries} times.",
                    given_up=given_up,
                    count=len(questions),
                    most_tries=most_tries,
                ),
                remedy=msg("Ask again later."),
            )
        if unreadable := sum(map(self.is_unreadable, questions)):
            raise BrokenAnswerError(
                msg(
                    "The responses to {unreadable} of {count} questions cannot be read.",
                    unreadable=unreadable,
                    count=len(questions),
                ),
                remedy=msg("They are in raw.set_aside."),
            )

    async def some(self, questions: Sequence[Question], asker: RequestContext) -> list[Told]:
        """One request, for up to twenty points or a number; what is not answered is left out."""
        points = [one for one in questions if isinstance(one, Point)]
        if len(questions) == 1:
            [one] = questions
            try:
                return [await self.told(one, asker)]
            except BrokenAnswerError:
                return []
        request = Request(
            "/batch",
            self._tkgm.batch_timeout.total_seconds(),
            kind="batch",
            method="POST",
            json={"coordinates": [{"lat": one.lat, "lon": one.lon} for one in points]},
            points=len(points),
            hedge=False,
        )
        fetched = await self._ask(request, asker)
        told, unreadable = _results(fetched, points, keyed=self._keyed)
        await self._quarantine(fetched, asker, unreadable)
        return told

    async def _ask(
        self, request: Request, asker: RequestContext, only: str | None = None
    ) -> FetchResult:
        self.requests += 1
        return await self._racer.fetch(request, asker, only=only)

    async def _quarantine(
        self, fetched: FetchResult, asker: RequestContext, parts: Sequence[Unreadable]
    ) -> None:
        """Store what could not be read and count it; the pool has stored what is `broken`."""
        if not parts:
            return
        self.quarantined += len(parts)
        self._unreadable.update(one for one, _, _ in parts if one is not None)
        if fetched.verdict.outcome is Outcome.BROKEN:
            return
        asides = [
            Aside(f"{fetched.endpoint} {'batch' if one is None else spelled(one)}", reason, content)
            for one, reason, content in parts
        ]
        async with self._store.connection() as conn:
            await keep_aside(conn, "tkgm", asker.run, asides)

    def _read(self, fetched: FetchResult, question: Question) -> Registered | None:
        match fetched.verdict.outcome:
            case Outcome.OK:
                return _read_at(question, parse_object(fetched.body), keyed=self._keyed)
            case Outcome.EMPTY:
                return None
            case _:
                raise BrokenAnswerError(
                    msg(
                        "The registry's answer could not be used: {reason}.",
                        reason=fetched.verdict.reason,
                    )
                )


def _single(question: Question, seconds: float) -> Request:
    match question:
        case Point(lat, lon):
            return Request(f"/parsel/{lat}/{lon}", seconds)
        case Number(mahalle, ada, parsel):
            where = {"mahalleId": str(mahalle), "adaNo": ada, "parselNo": parsel}
            return Request("", seconds, kind="number", by_number=where)


def _results(
    fetched: FetchResult, points: Sequence[Point], *, keyed: bool
) -> tuple[list[Told], list[Unreadable]]:
    """What a batch's response says, point by point, and the parts of it that cannot be read.

    An error says nothing about its point.
    """
    if fetched.verdict.outcome is not Outcome.OK:
        return [], []
    told: Any = json.loads(fetched.body)
    results = told.get("results") if isinstance(told, dict) else None
    if not isinstance(results, list) or len(results) != len(points):
        return [], [(None, f"This is no list of {len(points)} results.", fetched.body)]
    found: list[Told] = []
    unreadable: list[Unreadable] = []
    for point, result in zip(points, results, strict=True):
        match result:
            case {"status": "found", "data": dict(feature)}:
                try:
                    parcel = _read_at(point, feature, keyed=keyed)
                except BrokenAnswerError as error:
                    unreadable.append((point, error.message, json.dumps(feature).encode()))
                else:
                    found.append(Told(point, parcel, fetched.endpoint))
            case {"status": "empty"} if not result.get("data"):
                found.append(Told(point, None, fetched.endpoint))
            case {"status": "error"}:
                continue
            case _:
                content = json.dumps(result).encode()
                unreadable.append((point, "This is no result of a batch.", content))
    return found, unreadable


def _read_at(question: Question, feature: Mapping[str, Any], *, keyed: bool) -> Registered:
    parcel = read_feature(feature, keyed=keyed)
    if isinstance(question, Point):
        check_location(parcel, question)
    return parcel


@asynccontextmanager
async def registry(
    store: Store,
    settings: Settings,
    workers_file: Path,
    *,
    keyed: bool = True,
    waiting: Waiting = keep_slot,
) -> AsyncIterator[Registry]:
    """The registry over the endpoints that a workers.json declares."""
    tkgm = settings.tkgm
    workers = read_workers(
        workers_file, daily=tkgm.daily_per_endpoint, min_interval_ms=tkgm.min_interval_ms
    )
    key = workers.api_key.get_secret_value()
    budget = Budget(store, upstreams.tkgm(settings, workers.endpoints))
    pool = EndpointPool(
        store,
        budget,
        "tkgm",
        workers.endpoints,
        key=key,
        cooldown=tkgm.cooldown_seconds,
        waiting=waiting,
    )
    rules = ClientOptions(tkgm.user_agent, {"X-API-Key": key})
    try:
        async with Client(rules) as client, pool.opened():
            racer = HedgedFetcher(pool, client, classify, hedge_share=tkgm.hedge_percent / 100)
            yield Registry(store, racer, pool, settings, keyed=keyed, waiting=waiting)
    finally:
        await budget.close()


def spelled(question: Question) -> str:
    """A question as it is kept: the same text for the same question."""
    match question:
        case Point(lat, lon):
            return f"{lat!r},{lon!r}"
        case Number(mahalle, ada, parsel):
            return f"{mahalle}/{ada}/{parsel}"


def read_question(text: str) -> Question:
    """The question that is spelled so."""
    if "/" in text:
        mahalle, ada, parsel = text.split("/", 2)
        return Number(int(mahalle), ada, parsel)
    lat, lon = text.split(",")
    return Point(float(lat), float(lon))


class Direct:
    """The registry, asked without an endpoint between."""

    def __init__(self, fetcher: Fetcher, seconds: float) -> None:
        self._fetcher = fetcher
        self._seconds = seconds
        self._turn = asyncio.Lock()

    async def ask(self, path: str, job: str, *, patience: float = 60.0) -> FetchResult:
        """Its answer, if it says what was asked for or that there is no such thing."""
        async with self._turn:
            fetched = await self._fetcher.fetch(
                Request(path, self._seconds), RequestContext("daily", job), patience=patience
            )
        if fetched.verdict.outcome not in (Outcome.OK, Outcome.EMPTY):
            raise BrokenAnswerError(
                msg(
                    "The registry's answer to {path} could not be used: {reason}.",
                    path=path,
                    reason=fetched.verdict.reason,
                ),
                remedy=msg("Check tkgm.registry.url."),
            )
        return fetched


@asynccontextmanager
async def direct(store: Store, settings: Settings) -> AsyncIterator[Direct]:
    """The registry that the settings name."""
    url = settings.tkgm.registry.url
    if url is None:
        raise SettingsError(
            msg("The address of the registry is not set, so it cannot be asked directly."),
            remedy=msg(
                "If you are permitted to ask it, set tkgm.registry.url, for example to "
                "https://cbsapi.tkgm.gov.tr/megsiswebapi.v3/api."
            ),
        )
    upstream = upstreams.tkgm_registry(settings)
    async with (
        Budget(store, upstream) as budget,
        Client(ClientOptions(settings.tkgm.user_agent)) as client,
    ):
        fetcher = Fetcher(
            store, budget, client, upstream.name, url, classify, lambda headers: Remaining()
        )
        yield Direct(fetcher, settings.tkgm.single_timeout.total_seconds())
