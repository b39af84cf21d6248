"""A budget that grants everything, and an endpoint pool over faulty servers."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hasat.budget import Remaining, Waiting, keep_slot
from hasat.fetch import (
    Client,
    ClientOptions,
    Endpoint,
    EndpointPool,
    HedgedFetcher,
    Request,
    RequestContext,
)
from hasat.sources.tkgm.registry.wire import classify
from hasat.store import Store
from support.faulty_server import FaultyServer, Handler, ReceivedRequest, Reply, faulty_server

CONTEXT = RequestContext("daily", "test", run=7)
POINT = Request("/parsel/39.99/32.0", timeout=20.0)
FEATURE = {"type": "Feature", "geometry": None, "properties": {"ozet": "Dikmen-101/5"}}
LIMIT = {"Message": "Günlük sorgu limitini aştınız."}


@dataclass
class RecordedRequest:
    """One grant and its settlement."""

    lane: str
    job: str
    run: int | None
    cost: int
    endpoint: str | None
    outcome: str | None = None
    headers: Remaining = field(default_factory=Remaining)
    retry_after: float | None = None
    latency: float | None = None

    async def settle(
        self,
        outcome: str,
        headers: Remaining = Remaining(),  # noqa: B008 - frozen
        latency: float | None = None,
        retry_after: float | None = None,
    ) -> bool:
        self.outcome, self.headers = outcome, headers
        self.latency, self.retry_after = latency, retry_after
        return True


@dataclass
class FakeBudget:
    """A budget that grants every request and records it."""

    requests: list[RecordedRequest] = field(default_factory=list)
    slowed: int = 0

    async def acquire(
        self,
        lane: str,
        *,
        job: str,
        cost: int = 1,
        endpoint: str | None = None,
        run: int | None = None,
        timeout: float = 60.0,  # noqa: ASYNC109 - the signature of Budget
    ) -> RecordedRequest:
        self.requests.append(RecordedRequest(lane, job, run, cost, endpoint))
        return self.requests[-1]

    async def slow_down(self, factor: float, pause: float = 0.0) -> None:
        self.slowed += 1

    @property
    def outcomes(self) -> list[str | None]:
        return [request.outcome for request in self.requests]


@dataclass
class PoolUnderTest:
    """A pool of endpoints on faulty servers, and a fetcher over it."""

    servers: Sequence[FaultyServer]
    budget: FakeBudget
    pool: EndpointPool
    fetcher: HedgedFetcher

    async def fetch(self, request: Request = POINT) -> dict[str, object]:
        result = await self.fetcher.fetch(request, CONTEXT)
        content: dict[str, object] = json.loads(result.body or b"{}")
        return content

    def received(self) -> list[int]:
        return [len(server.received) for server in self.servers]


@asynccontextmanager
async def open_pool(
    store: Store, handlers: Sequence[Handler], **options: Any
) -> AsyncIterator[PoolUnderTest]:
    """Start a server with an endpoint for each handler; the options are those of `pool_over`."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(faulty_server(h)) for h in handlers]
        yield await stack.enter_async_context(pool_over(store, servers, **options))


@asynccontextmanager
async def pool_over(
    store: Store,
    servers: Sequence[FaultyServer],
    *,
    key: str = "secret",
    daily: int = 2000,
    min_interval: float = 0.0,
    cooldown: float = 300.0,
    patience: float = 20.0,
    hedge_share: float = 0.02,
    by_number: str | None = None,
    waiting: Waiting = keep_slot,
) -> AsyncIterator[PoolUnderTest]:
    """Open a pool over running servers, as another process would."""
    budget = FakeBudget()
    endpoints = [Endpoint(server.url, daily, min_interval, by_number) for server in servers]
    pool = EndpointPool(
        store,
        budget,
        "tkgm",
        endpoints,
        key=key,
        cooldown=cooldown,
        patience=patience,
        waiting=waiting,
    )
    async with Client(ClientOptions("Hasat test", {"X-API-Key": key})) as client, pool.opened():
        yield PoolUnderTest(
            servers, budget, pool, HedgedFetcher(pool, client, classify, hedge_share=hedge_share)
        )


async def found(_: ReceivedRequest, reply: Reply) -> None:
    """Respond with a parcel at once."""
    await reply.json(200, FEATURE)


def respond_with(status: int, content: object = None, **headers: str) -> Handler:
    """Return a handler with a fixed response; header names use underscores."""

    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        body = b"" if content is None else json.dumps(content, ensure_ascii=False).encode()
        await reply.send(status, body, {k.replace("_", "-"): v for k, v in headers.items()})

    return handler
