"""Asking the registry over the pool of endpoints: points in batches, numbers one by one."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hasat.budget import Budget, read_quotas
from hasat.errors import BrokenAnswerError, UnavailableError
from hasat.fetch import (
    Asker,
    Client,
    Endpoint,
    EndpointPool,
    Fetched,
    Outcome,
    Racer,
    Rules,
    read_workers,
)
from hasat.fetch import Question as Request
from hasat.settings import Settings
from hasat.sources import upstreams
from hasat.sources.tkgm.outcomes import classify
from hasat.sources.tkgm.questions import Number, Point, Question
from hasat.sources.tkgm.wire import Registered, read_feature, read_parcel
from hasat.store import Store

MOST_AT_ONCE = 20
# A point that no endpoint answers so often in a row is not asked for ever.
_MOST_ROUNDS = 4


@dataclass(frozen=True)
class Told:
    """The registry's word on a question: the parcel, or that there is none."""

    question: Question
    parcel: Registered | None


class Registry:
    """The registry, as far as its endpoints let it be asked today."""

    def __init__(self, racer: Racer, settings: Settings, endpoints: Sequence[Endpoint]) -> None:
        self._racer = racer
        self._tkgm = settings.tkgm
        self._urls = {one.url for one in endpoints}
        self.endpoints = len(endpoints)
        self.by_number = any(one.by_number for one in endpoints)
        self.known_age = settings.tkgm.parcel_age
        self.requests = 0

    async def parcel(self, lat: float, lon: float, asker: Asker) -> Registered | None:
        """The parcel at a point."""
        seconds = self._tkgm.single_timeout.total_seconds()
        return self._read(await self._ask(Request(f"/parsel/{lat}/{lon}", seconds), asker))

    async def numbered(
        self, mahalle: int, ada: str, parsel: str, asker: Asker
    ) -> Registered | None:
        """The parcel of a number, from an endpoint that answers such questions."""
        where = {"mahalleId": str(mahalle), "adaNo": ada, "parselNo": parsel}
        seconds = self._tkgm.single_timeout.total_seconds()
        request = Request("", seconds, kind="number", by_number=where)
        return self._read(await self._ask(request, asker))

    async def quota_left(self, store: Store) -> int | None:
        """How many questions its endpoints may still be asked today; None before the first."""
        uses = [one for quota in await read_quotas(store, "tkgm") for one in quota.endpoints]
        left = [
            0 if one.exhausted_at is not None else max(0, one.day_limit - one.spent)
            for one in uses
            if one.name in self._urls and one.day_limit is not None
        ]
        return sum(left) if left else None

    async def batch(self, points: Sequence[Point], asker: Asker) -> list[Told]:
        """Up to twenty points in one request; those left unanswered are asked again alone."""
        told: list[Told] = []
        open_points = list(points)
        for _ in range(_MOST_ROUNDS):
            answered = await self._one_batch(open_points, asker)
            told += answered
            done = {one.question for one in answered}
            open_points = [point for point in open_points if point not in done]
            if not open_points:
                return told
        raise UnavailableError(
            f"{len(open_points)} points were left unanswered {_MOST_ROUNDS} times.",
            remedy="Ask again later.",
        )

    async def some(self, points: Sequence[Point], asker: Asker) -> list[Told]:
        """One request for up to twenty points; what an endpoint leaves unanswered is left out."""
        return await self._one_batch(points, asker)

    async def _one_batch(self, points: Sequence[Point], asker: Asker) -> list[Told]:
        if len(points) == 1:
            [point] = points
            return [Told(point, await self.parcel(point.lat, point.lon, asker))]
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
        return list(_results(fetched, points))

    async def _ask(self, request: Request, asker: Asker) -> Fetched:
        self.requests += 1
        return await self._racer.ask(request, asker)

    @staticmethod
    def _read(fetched: Fetched) -> Registered | None:
        match fetched.verdict.outcome:
            case Outcome.OK:
                return read_parcel(fetched.body)
            case Outcome.EMPTY:
                return None
            case _:
                raise BrokenAnswerError(
                    f"The registry's answer could not be used: {fetched.verdict.reason}."
                )


def _results(fetched: Fetched, points: Sequence[Point]) -> list[Told]:
    """What a batch's answer says, point by point; an error says nothing."""
    if fetched.verdict.outcome is not Outcome.OK:
        return []
    told: Any = json.loads(fetched.body)
    results = told.get("results") if isinstance(told, dict) else None
    if not isinstance(results, list) or len(results) != len(points):
        return []
    found = []
    for point, result in zip(points, results, strict=True):
        match result:
            case {"status": "found", "data": dict(feature)}:
                try:
                    found.append(Told(point, read_feature(feature)))
                except BrokenAnswerError:
                    continue
            case {"status": "empty"}:
                found.append(Told(point, None))
    return found


@asynccontextmanager
async def registry(store: Store, settings: Settings, workers_file: Path) -> AsyncIterator[Registry]:
    """The registry over the endpoints that a workers.json declares."""
    tkgm = settings.tkgm
    workers = read_workers(
        workers_file, daily=tkgm.daily_per_endpoint, min_interval_ms=tkgm.min_interval_ms
    )
    key = workers.api_key.get_secret_value()
    budget = Budget(store, upstreams.tkgm(settings, workers.endpoints))
    pool = EndpointPool(
        store, budget, "tkgm", workers.endpoints, key=key, cooldown=tkgm.cooldown_seconds
    )
    rules = Rules(tkgm.user_agent, {"X-API-Key": key})
    try:
        async with Client(rules) as client, pool.opened():
            racer = Racer(pool, client, classify, hedge_share=tkgm.hedge_percent / 100)
            yield Registry(racer, settings, workers.endpoints)
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
