"""Who is let in by address and name: open on loopback for loopback names, and for no others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from hasat.api.app import create_app
from hasat.api.authentication import check_authentication_configured, is_loopback, is_open
from hasat.errors import DatabaseError
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.store import Store
from hasat.testing.http import app_client

pytestmark = pytest.mark.anyio

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound here


class StoreAway(Store):
    """A store whose database is never there."""

    def __init__(self) -> None:
        pass

    def connection(self) -> Any:
        raise DatabaseError("PostgreSQL cannot be reached.")


NO_STORE = StoreAway()
ANONYMOUS = ("/healthz", "/openapi.json", "/docs", "/docs.css", "/problems", "/problems/gone")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def settings_with(home: Path, flags: Mapping[str, str], **environ: str) -> Settings:
    return load_settings(flags, {"HASAT_HOME": str(home), **environ})


def app_with(home: Path, flags: Mapping[str, str], **environ: str) -> FastAPI:
    settings = settings_with(home, flags, **environ)
    return create_app(settings, NO_STORE, Catalogue.of((), settings), ())


async def get(app: FastAPI, host: str, path: str = "/nothing") -> httpx2.Response:
    async with app_client(app) as client:
        return await client.get(path, headers={"Host": host})


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.8.7.6", "::1", "[::1]"]
)
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        EVERYWHERE,
        "::",
        "",
        "192.168.1.2",
        "localhost.example.com",
        "127.0.0.1.example.com",
        "1.0.0.127",
    ],
)
def test_names_that_others_can_reach(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("flags", "open_to_all"),
    [
        ({}, True),
        ({"serve.host": "localhost"}, True),
        ({"serve.host": EVERYWHERE}, False),
        ({"serve.host": "192.168.1.2"}, False),
        ({"serve.allowed_hosts": "hasat.example.com"}, False),
        ({"authentication.enabled": "true"}, False),
    ],
)
async def test_open_only_where_nobody_else_can_come(
    home: Path, flags: dict[str, str], open_to_all: bool
) -> None:
    assert is_open(settings_with(home, flags)) is open_to_all
    answer = await get(app_with(home, flags), "localhost")
    assert answer.status_code == (404 if open_to_all else 401)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8787", "[::1]:8787", "localhost:1"])
async def test_on_loopback_loopback_names_are_answered(home: Path, host: str) -> None:
    assert (await get(app_with(home, {}), host, "/healthz")).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8787", "192.168.1.2", "", "localhost@evil.example"]
)
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/status", "/openapi.json"])
async def test_on_loopback_no_other_name_is_answered(home: Path, host: str, path: str) -> None:
    answer = await get(app_with(home, {}), host, path)
    assert answer.status_code == 403
    assert answer.json()["code"] == "host-not-allowed"
    assert "allowed_hosts" in answer.json()["remedy"]


async def test_two_hosts_are_no_host(home: Path) -> None:
    async with app_client(app_with(home, {})) as client:
        headers = [("Host", "localhost"), ("Host", "evil.example")]
        assert (await client.get("/healthz", headers=headers)).status_code == 403


async def test_allowed_names_are_answered_but_callers_must_be_known(home: Path) -> None:
    app = app_with(home, {"serve.allowed_hosts": "hasat.example.com"})
    assert (await get(app, "Hasat.Example.com:443", "/healthz")).status_code == 200
    assert (await get(app, "hasat.example.com")).status_code == 401
    assert (await get(app, "localhost")).status_code == 401
    assert (await get(app, "other.example.com", "/healthz")).status_code == 403


async def test_bound_to_all_addresses_any_name_will_do(home: Path) -> None:
    app = app_with(home, {"serve.host": EVERYWHERE})
    assert (await get(app, "whatever.example", "/healthz")).status_code == 200
    assert (await get(app, "whatever.example")).status_code == 401


async def test_what_needs_no_key_and_what_does(home: Path) -> None:
    app = app_with(home, {"serve.host": EVERYWHERE})
    for path in ANONYMOUS:
        assert (await get(app, "h", path)).status_code == 200
    for path in ("/", "/api/v1/status", "/healthz/", "/problemsx", "/docs/x", "/api"):
        answer = await get(app, "h", path)
        assert answer.status_code == 401
        assert answer.json()["code"] == "not-known"
        assert "hasat keys create" in answer.json()["remedy"]
        assert answer.headers["www-authenticate"] == 'Bearer realm="hasat"'


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 404),
        ("http://localhost:8787", 404),
        ("https://LOCALHOST:8787", 404),
        ("http://localhost", 403),
        ("http://localhost:9999", 403),
        ("http://127.0.0.1:8787", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_pages_of_other_sites_change_nothing(
    home: Path, method: str, origin: str | None, status: int
) -> None:
    headers = {"Host": "localhost:8787"} | ({} if origin is None else {"Origin": origin})
    async with app_client(app_with(home, {})) as client:
        answer = await client.request(method, "/nothing", headers=headers)
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["code"] == "origin-not-allowed"
        # Reading is not changing: the browser itself keeps the answer from the other site.
        assert (await client.get("/healthz", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Authorization": "Basic dXNlcjpwYXNz"}, "credentials-malformed"),
        ({"Authorization": "Bearer"}, "credentials-malformed"),
        ({"Authorization": "Bearer nonsense"}, "credentials-malformed"),
        ({"X-API-Key": ""}, "credentials-malformed"),
        ({"X-Access-Key": "AK"}, "credentials-malformed"),
        ({"X-API-Key": "a", "Authorization": "Bearer a"}, "credentials-malformed"),
        ({"X-API-Key": "a", "X-Access-Key": "b"}, "credentials-malformed"),
    ],
)
@pytest.mark.parametrize("flags", [{}, {"serve.host": EVERYWHERE}])
async def test_credentials_that_cannot_be_read(
    home: Path, headers: dict[str, str], code: str, flags: dict[str, str]
) -> None:
    async with app_client(app_with(home, flags)) as client:
        answer = await client.get("/nothing", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, code)


async def test_guessing_is_limited_per_address(home: Path) -> None:
    app = app_with(home, {"serve.host": EVERYWHERE, "serve.requests_per_minute": "5"})
    async with app_client(app, address="192.0.2.1") as guesser:
        statuses = [(await guesser.get("/api/v1/status")).status_code for _ in range(7)]
        assert statuses == [401] * 5 + [429] * 2
        # Open pages are counted separately, and probes are never refused.
        assert (await guesser.get("/docs")).status_code == 200
        assert {(await guesser.get("/healthz")).status_code for _ in range(20)} == {200}
    async with app_client(app, address="192.0.2.2") as other:
        assert (await other.get("/api/v1/status")).status_code == 401


async def test_the_limit_is_announced_and_a_refusal_says_how_long(home: Path) -> None:
    app = app_with(home, {"serve.host": EVERYWHERE, "serve.requests_per_minute": "2"})
    async with app_client(app) as client:
        answers = [await client.get("/docs") for _ in range(3)]
    assert [answer.headers["ratelimit-limit"] for answer in answers] == ["2", "2", "2"]
    assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["1", "0", "0"]
    assert all(1 <= int(answer.headers["ratelimit-reset"]) <= 60 for answer in answers)
    refused = answers[-1]
    assert refused.status_code == 429
    assert refused.json()["code"] == "too-many-requests"
    assert 1 <= int(refused.headers["retry-after"]) <= 30


async def test_no_limit_for_this_machine_or_where_it_is_switched_off(home: Path) -> None:
    local = settings_with(home, {"serve.requests_per_minute": "1"})
    public = settings_with(home, {"serve.host": EVERYWHERE})
    unlimited = public.model_copy(
        update={"serve": public.serve.model_copy(update={"requests_per_minute": 0})}
    )
    for settings in (local, unlimited):
        app = create_app(settings, NO_STORE, Catalogue.of((), settings), ())
        async with app_client(app) as client:
            answers = [await client.get("/docs") for _ in range(10)]
        assert {answer.status_code for answer in answers} == {200}
        assert "ratelimit-limit" not in answers[-1].headers


async def test_clients_that_sign_are_enough_to_start(home: Path) -> None:
    settings = settings_with(
        home,
        {"serve.host": EVERYWHERE},
        Authentication__Clients__0__AccessKey="AK1",
        Authentication__Clients__0__SecretKey="a secret of the client",
    )
    await check_authentication_configured(settings, NO_STORE)
    await check_authentication_configured(settings_with(home, {}), NO_STORE)
