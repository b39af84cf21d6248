"""A purse that grants everything and writes down what it is told; a pool of faulty servers."""

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
from hasat.sources.tkgm.registry.outcomes import classify
from hasat.store import Store
from support.faulty import Asked, FaultyServer, Handler, Reply, faulty_server

ASKER = RequestContext("daily", "test", run=7)
POINT = Request("/parsel/39.99/32.0", timeout=20.0)
FEATURE = {"type": "Feature", "geometry": None, "properties": {"ozet": "Dikmen-101/5"}}
LIMIT = {"Message": "Günlük sorgu limitini aştınız."}


@dataclass
class Line:
    """One grant in the ledger, and what became of it."""

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
class Ledger:
    """A purse without a bottom."""

    lines: list[Line] = field(default_factory=list)
    slowed: int = 0

    async def acquire(
        self,
        lane: str,
        *,
        job: str,
        cost: int = 1,
        endpoint: str | None = None,
        run: int | None = None,
        timeout: float = 60.0,  # noqa: ASYNC109 - as the budget's
    ) -> Line:
        self.lines.append(Line(lane, job, run, cost, endpoint))
        return self.lines[-1]

    async def slow_down(self, factor: float, pause: float = 0.0) -> None:
        self.slowed += 1

    @property
    def outcomes(self) -> list[str | None]:
        return [line.outcome for line in self.lines]


@dataclass
class Field:
    """Endpoints on faulty servers, and a racer over them."""

    servers: Sequence[FaultyServer]
    ledger: Ledger
    pool: EndpointPool
    racer: HedgedFetcher

    async def ask(self, question: Request = POINT) -> dict[str, object]:
        fetched = await self.racer.fetch(question, ASKER)
        content: dict[str, object] = json.loads(fetched.body or b"{}")
        return content

    def asked(self) -> list[int]:
        return [len(server.asked) for server in self.servers]


@asynccontextmanager
async def racing(store: Store, handlers: Sequence[Handler], **options: Any) -> AsyncIterator[Field]:
    """A server and an endpoint for each handler; the options are those of `field_over`."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(faulty_server(h)) for h in handlers]
        yield await stack.enter_async_context(field_over(store, servers, **options))


@asynccontextmanager
async def field_over(
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
) -> AsyncIterator[Field]:
    """A pool over servers that are there already, as another process would have it."""
    ledger = Ledger()
    endpoints = [Endpoint(server.url, daily, min_interval, by_number) for server in servers]
    pool = EndpointPool(
        store,
        ledger,
        "tkgm",
        endpoints,
        key=key,
        cooldown=cooldown,
        patience=patience,
        waiting=waiting,
    )
    async with Client(ClientOptions("Hasat test", {"X-API-Key": key})) as client, pool.opened():
        yield Field(
            servers, ledger, pool, HedgedFetcher(pool, client, classify, hedge_share=hedge_share)
        )


async def found(_: Asked, reply: Reply) -> None:
    """A parcel, at once."""
    await reply.json(200, FEATURE)


def saying(status: int, content: object = None, **headers: str) -> Handler:
    """Always the same answer; header names are written with underscores."""

    async def handler(_: Asked, reply: Reply) -> None:
        body = b"" if content is None else json.dumps(content, ensure_ascii=False).encode()
        await reply.send(status, body, {k.replace("_", "-"): v for k, v in headers.items()})

    return handler
