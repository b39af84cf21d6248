"""Rate limits over several servers on one database; probes respond whatever else is refused."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from structlog.testing import capture_logs

from hasat.api import rate_limits
from hasat.api.app import create_app
from hasat.api.keys import create_key, limit_key
from hasat.api.rate_limits import DatabaseLeases, block_of
from hasat.http.listener import Listener, bind
from hasat.http.routes import declare_responses
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import MigrationSet, Store
from hasat.store.store import open_store
from hasat.testing.http import app_client
from hasat.web.app import add_pages

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

TOY = APIRouter()
OWN = {"Origin": "http://127.0.0.1", "Accept": "text/html"}
PROBES = ("/healthz", "/readyz", "/health", "/metrics")


@TOY.get("/toys", summary="Look", responses=declare_responses("x"))
async def look() -> str:
    return "seen"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine is not a database that is away."""
    monkeypatch.setattr(rate_limits, "MAX_WAIT_SECONDS", 60.0)


@pytest.fixture
def public(settings: Settings) -> Settings:
    return with_limit(settings, 60)


def with_limit(settings: Settings, per_minute: int) -> Settings:
    changes = {"host": "192.0.2.10", "requests_per_minute": per_minute}
    return settings.model_copy(update={"serve": settings.serve.model_copy(update=changes)})


def app_of(settings: Settings, store: Store) -> FastAPI:
    source = Source("toys", "Toys", routers=lambda: (TOY,))
    catalogue = Catalogue.of((), settings)
    app = create_app(settings, store, catalogue, (source,))
    add_pages(app, settings, store, catalogue, (source,))
    return app


@pytest.fixture
async def servers(
    public: Settings, migrations: Sequence[MigrationSet]
) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """Clients of two servers on one database, each with a pool of its own."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(public, migrations)) for _ in "12"]
        apps = [app_of(public, store) for store in stores]
        yield [await stack.enter_async_context(app_client(app)) for app in apps]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def get(client: httpx2.AsyncClient, token: str) -> httpx2.Response:
    return await client.get("/api/v1/toys", headers=bearer(token))


async def guess(client: httpx2.AsyncClient) -> int:
    answer = await client.post("/login", data={"key": "wrong", "to": "/"}, headers=OWN)
    return answer.status_code


async def test_a_key_has_one_limit_over_all_servers(
    servers: list[httpx2.AsyncClient], store: Store
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    per_minute = 200
    _, token = await create_key(store, "grafana", per_minute=per_minute)
    began = time.monotonic()
    statuses: list[int] = []
    while len(statuses) < 2 * per_minute:
        burst = [chance.choice(servers) for _ in range(chance.randint(1, 20))]
        answered = await asyncio.gather(*(get(client, token) for client in burst))
        assert {answer.headers["ratelimit-limit"] for answer in answered} == {str(per_minute)}
        statuses += [answer.status_code for answer in answered]
    seconds = time.monotonic() - began
    assert set(statuses) == {200, 429}
    admitted = statuses.count(200)
    # No server held tokens at the beginning, so none of the documented overshoot applies.
    assert admitted <= per_minute + per_minute * seconds / 60
    assert admitted >= per_minute - 2 * block_of(per_minute)


async def test_guesses_have_one_limit_over_all_servers(servers: list[httpx2.AsyncClient]) -> None:
    began = time.monotonic()
    statuses = [await guess(client) for _ in range(45) for client in servers]
    seconds = time.monotonic() - began
    assert 60 - 2 * block_of(60) <= statuses.count(401) <= 60 + seconds
    assert statuses.count(401) + statuses.count(429) == 90


async def test_probes_respond_while_guesses_and_floods_are_refused(
    settings: Settings, store: Store
) -> None:
    _, token = await create_key(store, "grafana", per_minute=0)
    app = app_of(with_limit(settings, 3), store)
    async with app_client(app) as client:
        assert [await guess(client) for _ in range(6)] == [401] * 3 + [429] * 3
        flood = await asyncio.gather(*(client.get("/docs") for _ in range(50)))
        assert {answer.status_code for answer in flood} == {200, 429}
        wrong = [(await client.get("/api/v1/toys")).status_code for _ in range(3)]
        assert wrong == [429] * 3
        for path in PROBES:
            probed = await asyncio.gather(*(client.get(path) for _ in range(30)))
            assert {answer.status_code for answer in probed} == {200}
            assert "ratelimit-limit" not in probed[0].headers
        assert (await get(client, token)).status_code == 200
        metrics = (await client.get("/metrics")).text
    assert 'hasat_rate_limited_total{by="guess"} 6.0' in metrics
    assert 'hasat_rate_limited_total{by="address"} 47.0' in metrics


async def test_a_refused_login_is_a_problem_with_the_time_to_wait(
    settings: Settings, store: Store
) -> None:
    async with app_client(app_of(with_limit(settings, 1), store)) as client:
        assert await guess(client) == 401
        refused = await client.post("/login", data={"key": "x"}, headers={"Origin": OWN["Origin"]})
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["ratelimit-remaining"] == "0"


async def test_each_key_has_its_own_limit_which_can_be_changed(
    public: Settings, store: Store
) -> None:
    key, own = await create_key(store, "own", per_minute=2)
    _, default = await create_key(store, "default")
    _, unlimited = await create_key(store, "unlimited", per_minute=0)
    async with app_client(app_of(public, store)) as client:
        assert [(await get(client, own)).status_code for _ in range(3)] == [200, 200, 429]
        assert (await get(client, default)).headers["ratelimit-limit"] == "60"
        assert "ratelimit-limit" not in (await get(client, unlimited)).headers
        assert 'hasat_rate_limited_total{by="key"} 1.0' in (await client.get("/metrics")).text
    await limit_key(store, key.id, 500)
    async with app_client(app_of(public, store)) as client:
        assert (await get(client, own)).headers["ratelimit-limit"] == "500"
    await limit_key(store, "own", None)
    async with app_client(app_of(public, store)) as client:
        assert (await get(client, own)).headers["ratelimit-limit"] == "60"


async def test_logins_count_as_their_key(public: Settings, store: Store) -> None:
    _, token = await create_key(store, "grafana", per_minute=3)
    app = app_of(public, store)
    statuses = []
    for _ in range(4):
        async with app_client(app) as browser:
            form = {"key": token, "to": "/"}
            assert (await browser.post("/login", data=form, headers=OWN)).status_code == 303
            statuses.append((await browser.get("/api/v1/toys")).status_code)
    assert statuses == [200, 200, 200, 429]


async def test_concurrent_leases_grant_no_token_twice(store: Store) -> None:
    lease = DatabaseLeases(store)
    began = time.monotonic()
    granted = await asyncio.gather(*(lease("key:a", 100, 7) for _ in range(40)))
    seconds = time.monotonic() - began
    total = sum(tokens for tokens, _ in granted)
    assert 100 <= total <= 100 + 100 * seconds / 60
    assert all(0 <= remaining <= 100 for _, remaining in granted)


async def test_full_buckets_are_deleted(store: Store) -> None:
    class Watch:
        seconds = 0.0

        def __call__(self) -> float:
            return self.seconds

    watch = Watch()
    lease = DatabaseLeases(store, monotonic=watch)
    await lease("key:a", 100, 7)
    await lease("key:b", 100, 7)
    async with store.connection() as conn:
        await conn.execute(
            "UPDATE serve.token_bucket SET filled_at = filled_at - interval '3 minutes'"
            " WHERE name = 'key:a'"
        )
    watch.seconds = 61.0
    await lease("key:c", 100, 7)
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT name FROM serve.token_bucket ORDER BY name")
        assert [row[0] for row in await cursor.fetchall()] == ["key:b", "key:c"]


@pytest.mark.parametrize(
    ("trusted", "address"), [("127.0.0.1", "198.51.100.7"), ("192.0.2.99", "127.0.0.1")]
)
async def test_the_access_log_has_the_address_of_the_client(
    settings: Settings,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    trusted: str,
    address: str,
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    socket = bind("127.0.0.1", 0)
    listener = Listener(app_of(settings, store), socket)
    await listener.start()
    port = socket.getsockname()[1]
    with capture_logs() as lines:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            forwarded = {"X-Forwarded-For": "203.0.113.1, 198.51.100.7"}
            assert (await client.get("/api/v1/toys", headers=forwarded)).status_code == 200
        # The line is written after the response was sent.
        listener.drain()
        await listener.wait_closed()
    (line,) = [one for one in lines if one["event"] == "request"]
    assert (line["address"], line["client"], line["path"]) == (address, "local", "/api/v1/toys")
