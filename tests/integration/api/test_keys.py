"""API keys: who holds one gets in, for what it was made for, until it expires or is revoked."""

import io
import logging
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

import httpx2
import pytest
import structlog
from fastapi import APIRouter, Depends, FastAPI

from hasat.api.app import create_app
from hasat.api.authentication import check_authentication_configured
from hasat.api.keys import KeyCache, create_key, list_keys, revoke_key
from hasat.api.problems import KeyExpiredError, KeyRevokedError, KeyUnknownError
from hasat.errors import NotFoundError, NothingToDoError, SettingsError, UsageError
from hasat.http.routes import Caller, declare_responses, require
from hasat.jobs import Catalogue
from hasat.logs import configure_logging
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

TOY = APIRouter()


@TOY.get("/toys", summary="Look", responses=declare_responses("x"))
async def look(caller: Annotated[Caller, Depends(require("read"))]) -> str:
    return caller.name


@TOY.get(
    "/unmarked", summary="A route that says nothing about callers", responses=declare_responses("x")
)
async def unmarked() -> str:
    return "seen"


@TOY.post("/toys", summary="Play", responses=declare_responses("x"))
async def play(caller: Annotated[Caller, Depends(require("operate"))]) -> str:
    return caller.name


@TOY.get("/broken", summary="A fault", responses=declare_responses({}))
async def broken() -> None:
    raise RuntimeError("a fault")


class Watch:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def with_serve(settings: Settings, **changes: object) -> Settings:
    return settings.model_copy(update={"serve": settings.serve.model_copy(update=changes)})


@pytest.fixture
def public(settings: Settings) -> Settings:
    return with_serve(settings, host="192.0.2.10")


def app_of(settings: Settings, store: Store) -> FastAPI:
    source = Source("toys", "Toys", routers=lambda: (TOY,))
    return create_app(settings, store, Catalogue.of((), settings), (source,))


@pytest.fixture
def app(public: Settings, store: Store) -> FastAPI:
    return app_of(public, store)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_key_lets_its_holder_in_both_ways(client: httpx2.AsyncClient, store: Store) -> None:
    _, token = await create_key(store, "grafana")
    for headers in (bearer(token), {"X-API-Key": token}, {"authorization": f"bearer  {token}"}):
        answer = await client.get("/api/v1/toys", headers=headers)
        assert (answer.status_code, answer.json()) == (200, "grafana")
        assert answer.headers["ratelimit-limit"] == "600"
    assert (await client.get("/api/v1/unmarked", headers=bearer(token))).status_code == 200


async def test_nobody_gets_past_the_gate_unknown_even_if_the_route_says_nothing(
    client: httpx2.AsyncClient,
) -> None:
    for method, path in (("GET", "/api/v1/unmarked"), ("POST", "/api/v1/toys"), ("GET", "/x")):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (401, "not-known")


async def test_operating_needs_the_scope_and_includes_reading(
    client: httpx2.AsyncClient, store: Store
) -> None:
    _, reader = await create_key(store, "reader")
    _, operator = await create_key(store, "operator", "operate")
    refused = await client.post("/api/v1/toys", headers=bearer(reader))
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    assert "--scope operate" in refused.json()["remedy"]
    assert (await client.post("/api/v1/toys", headers=bearer(operator))).json() == "operator"
    assert (await client.get("/api/v1/toys", headers=bearer(operator))).json() == "operator"


async def test_wrong_keys_are_refused_alike_and_expired_ones_by_name(
    client: httpx2.AsyncClient, store: Store
) -> None:
    key, token = await create_key(store, "grafana")
    _, other = await create_key(store, "other")
    _, short = await create_key(store, "short", lifetime=timedelta(microseconds=1))
    unknown_id = token.replace(key.id, "a" * 10)
    swapped = f"hsk_{key.id}_{other.split('_', 2)[2]}"
    unknown = await client.get("/api/v1/toys", headers=bearer(unknown_id))
    wrong = await client.get("/api/v1/toys", headers=bearer(swapped))
    expired = await client.get("/api/v1/toys", headers=bearer(short))
    assert [a.status_code for a in (unknown, wrong, expired)] == [401] * 3
    assert expired.json()["code"] == "key-expired"
    for answer in (unknown, wrong):
        body = answer.json()
        del body["requestId"]
        assert body == {
            **body,
            "code": "key-unknown",
            "detail": "No key of this server has this value.",
        }


async def test_a_key_is_known_as_soon_as_it_is_made(public: Settings, store: Store) -> None:
    watch = Watch()
    ring = KeyCache(store, monotonic=watch)
    _, first = await create_key(store, "first")
    await ring.check(first)
    _, second = await create_key(store, "second")
    watch.seconds += 1.1
    assert (await ring.check(second)).name == "second"


async def test_a_revoked_key_is_refused_within_the_time_promised(store: Store) -> None:
    watch = Watch()
    ring = KeyCache(store, monotonic=watch)
    key, token = await create_key(store, "grafana")
    await ring.check(token)
    await revoke_key(store, key.id)
    watch.seconds += 5.1
    with pytest.raises(KeyRevokedError, match=key.id):
        await ring.check(token)


async def test_known_keys_cost_no_query_each_and_guesses_one_a_second(store: Store) -> None:
    watch = Watch()
    counting = CountingStore(store)
    ring = KeyCache(counting, monotonic=watch)
    key, token = await create_key(store, "grafana")
    for _ in range(50):
        await ring.check(token)
    assert counting.asked == 2  # the keys were read, and the use of one was noted
    guess = f"hsk_{'b' * 10}_{'x' * 43}"
    watch.seconds += 1.1
    for _ in range(50):
        with pytest.raises(KeyUnknownError):
            await ring.check(guess)
    assert counting.asked == 3
    assert key.id in repr(await list_keys(store))


class CountingStore(Store):
    """Counts how often the database was asked."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.pool, store.url, embedded=store.embedded, label=store.label)
        self.asked = 0

    def connection(self):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super().connection()


async def test_the_last_use_is_noted_once_a_minute(store: Store) -> None:
    watch = Watch()
    ring = KeyCache(store, monotonic=watch)
    _, token = await create_key(store, "grafana")
    assert (await list_keys(store))[0].last_used_at is None
    await ring.check(token)
    first = (await list_keys(store))[0].last_used_at
    assert first is not None
    watch.seconds += 59
    await ring.check(token)
    watch.seconds += 2
    async with store.connection() as conn:
        await conn.execute("UPDATE serve.api_key SET last_used_at = now() - interval '61 seconds'")
    await ring.check(token)
    again = (await list_keys(store))[0].last_used_at
    assert again is not None
    assert again >= first


async def test_a_key_works_where_its_use_cannot_be_noted(store: Store) -> None:
    _, token = await create_key(store, "grafana")
    async with store.connection() as conn:
        await conn.execute("ALTER TABLE serve.api_key ADD CHECK (last_used_at IS NULL)")
    assert (await KeyCache(store).check(token)).name == "grafana"


async def test_expiry_is_decided_by_the_database(store: Store) -> None:
    _, token = await create_key(store, "short", lifetime=timedelta(days=1))
    assert (await KeyCache(store).check(token)).name == "short"
    async with store.connection() as conn:
        await conn.execute("UPDATE serve.api_key SET expires_at = now() - interval '1 second'")
    with pytest.raises(KeyExpiredError):
        await KeyCache(store).check(token)
    assert [key.state for key in await list_keys(store)] == ["expired"]


async def test_only_a_digest_is_kept(store: Store) -> None:
    key, token = await create_key(store, "grafana")
    assert re.fullmatch(r"hsk_[a-z2-7]{10}_[A-Za-z0-9_-]{43}", token)
    secret = token.split("_", 2)[2]
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT to_json(k)::text FROM serve.api_key k")).fetchone()
    assert row is not None
    assert secret not in row[0]
    assert secret.encode().hex() not in row[0]
    assert secret not in repr(key)
    assert "digest" not in key.public()


async def test_revoking_says_what_it_found(store: Store) -> None:
    key, _ = await create_key(store, "grafana")
    assert (await revoke_key(store, key.id)).state == "revoked"
    with pytest.raises(NothingToDoError):
        await revoke_key(store, key.id)
    with pytest.raises(NotFoundError, match="keys list"):
        await revoke_key(store, "nosuchkey")


@pytest.mark.parametrize("name", ["", "   ", "x" * 101])
async def test_a_name_is_needed(store: Store, name: str) -> None:
    with pytest.raises(UsageError):
        await create_key(store, name)


async def test_each_key_has_its_own_limit(public: Settings, store: Store) -> None:
    _, first = await create_key(store, "first")
    _, second = await create_key(store, "second")
    app = app_of(with_serve(public, requests_per_minute=3), store)
    async with app_client(app) as client:
        statuses = [
            (await client.get("/api/v1/toys", headers=bearer(first))).status_code for _ in range(5)
        ]
        assert statuses == [200] * 3 + [429] * 2
        assert (await client.get("/api/v1/toys", headers=bearer(second))).status_code == 200


async def test_on_loopback_keys_are_not_needed_but_looked_at(
    settings: Settings, store: Store
) -> None:
    key, token = await create_key(store, "grafana")
    async with app_client(app_of(settings, store)) as client:
        assert (await client.get("/api/v1/toys")).json() == "local"
        assert (await client.post("/api/v1/toys")).json() == "local"
        named = await client.get("/api/v1/toys", headers=bearer(token))
        assert named.json() == "grafana"
        assert named.headers["ratelimit-remaining"] == "599"
        assert (await client.post("/api/v1/toys", headers=bearer(token))).status_code == 403
    await revoke_key(store, key.id)
    async with app_client(app_of(settings, store)) as client:
        refused = await client.get("/api/v1/toys", headers=bearer(token))
        assert refused.json()["code"] == "key-revoked"


async def test_it_starts_only_where_somebody_could_get_in(
    settings: Settings, public: Settings, store: Store
) -> None:
    closed = settings.model_copy(
        update={"authentication": settings.authentication.model_copy(update={"enabled": True})}
    )
    behind_proxy = with_serve(settings, allowed_hosts=("hasat.example.com",))
    await check_authentication_configured(settings, store)
    for needs_keys in (public, closed, behind_proxy):
        with pytest.raises(SettingsError) as refusal:
            await check_authentication_configured(needs_keys, store)
        assert "hasat keys create" in (refusal.value.remedy or "")
    key, _ = await create_key(store, "grafana")
    for needs_keys in (public, closed, behind_proxy):
        await check_authentication_configured(needs_keys, store)
    await revoke_key(store, key.id)
    await create_key(store, "short", lifetime=timedelta(microseconds=1))
    with pytest.raises(SettingsError, match=r"192\.0\.2\.10"):
        await check_authentication_configured(public, store)


@pytest.fixture
def written(settings: Settings) -> Iterator[io.StringIO]:
    """The log as it leaves the process."""
    stream = io.StringIO()
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # so that the test run's own are not closed
    quiet = settings.log.model_copy(update={"format": "json", "level": "DEBUG"})
    configure_logging(settings.model_copy(update={"log": quiet}), stream=stream)
    yield stream
    structlog.configure(**before)
    logging.captureWarnings(False)
    root.handlers, root.level = handlers, level


async def test_a_key_never_appears_in_the_log(
    written: io.StringIO, client: httpx2.AsyncClient, store: Store, database: ThrowAwayDatabase
) -> None:
    key, token = await create_key(store, "grafana", "operate")
    secret = token.split("_", 2)[2]
    for headers in (bearer(token), {"X-API-Key": token}, {"Authorization": f"Basic {token}"}):
        for path in ("/api/v1/toys", "/api/v1/broken", f"/api/v1/nothing?key={token}"):
            await client.get(path, headers=headers)
    await revoke_key(store, key.id)
    log = written.getvalue()
    assert '"client": "grafana"' in log
    assert "a fault" in log
    assert secret not in log
    assert token not in log


async def test_an_identity_number_in_a_path_is_masked_in_the_log(
    written: io.StringIO, client: httpx2.AsyncClient, store: Store
) -> None:
    _, token = await create_key(store, "grafana")
    await client.get("/api/v1/einvoice/10000000146", headers=bearer(token))
    assert "100******46" in written.getvalue()
    assert "10000000146" not in written.getvalue()
