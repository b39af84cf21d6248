"""The lean path of lookups and the general one respond alike, down to every header."""

import asyncio
import random
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from structlog.testing import capture_logs

from hasat.api.app import create_app
from hasat.api.keys import create_key, revoke_key
from hasat.feed.encoding import canonical, record_digest
from hasat.feed.lookups import RecordLookup
from hasat.jobs import Catalogue
from hasat.settings import HmacClient, Settings
from hasat.sources.gib.datasets import EINVOICE
from hasat.sources.gib.source import GIB
from hasat.sources.gib.sync.sync import synchronise
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client

pytestmark = pytest.mark.anyio

USER = """<User><Identifier>{id}</Identifier><Title>{title}</Title><Type>OZEL</Type>
<FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents><Document type="Invoice">
<Alias><Name>{alias}</Name><CreationTime>2019-05-01T10:00:00</CreationTime></Alias>
</Document></Documents></User>"""
TITLES = ("IŞIK A.Ş.", "ÇAĞ &quot;LTD&quot; \\ &lt;ŞTİ&gt;", "TAB\tLI", "x\u00ad\u2028y", "😀 A.Ş.")
_VOLATILE = {"x-request-id", "ratelimit-remaining", "ratelimit-reset"}
ROUNDS = 60


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MigrationSet("gib", files("hasat.sources.gib") / "migrations")]


def write_lists(folder: Path, titles: tuple[str, ...] = TITLES) -> dict[str, Path]:
    users = "".join(
        USER.format(id=f"{1234567890 + n}", title=title, alias=f"urn:mail:pk{n}@x.tr")
        for n, title in enumerate(titles)
    )
    paths = {}
    for box in ("PK", "GB"):
        paths[box] = folder / f"{box}.xml"
        paths[box].write_text(f"<UserList>{users}</UserList>", "utf-8")
    return paths


@pytest.fixture
async def app(settings: Settings, store: Store, tmp_path: Path) -> FastAPI:
    await synchronise(store, settings, write_lists(tmp_path), run=1)
    client = HmacClient(access_key="AK1", secret_key=SecretStr("a secret"), name="accounting")
    section = settings.authentication.model_copy(update={"clients": (client,), "enabled": True})
    settings = settings.model_copy(update={"authentication": section})
    return create_app(settings, store, Catalogue.of([], settings), [GIB])


@pytest.fixture
async def both(app: FastAPI, settings: Settings, store: Store) -> AsyncIterator["Both"]:
    general = create_app(app.state.settings, store, Catalogue.of([], settings), [GIB])
    routes = general.state.routes
    routes.refresh()
    lean, routes._lean = routes._lean, {}
    assert set(lean) == {"/api/v1/einvoice", "/api/v1/edespatch", "/api/v1/check"}
    async with app_client(app) as first, app_client(general) as second:
        yield Both(first, second)


class Both:
    """Two apps over one database, one of them without lean paths."""

    def __init__(self, lean: httpx2.AsyncClient, general: httpx2.AsyncClient) -> None:
        self._clients = lean, general

    async def ask(self, method: str, path: str, headers: dict[str, str]) -> httpx2.Response:
        shown, logged = [], []
        for client in self._clients:
            with capture_logs() as logs:
                response = await client.request(method, path, headers=headers)
            logged.append(
                [
                    {k: v for k, v in one.items() if k != "milliseconds"}
                    for one in logs
                    if one["event"] == "request"
                ]
            )
            shown.append(_shown(response))
        assert shown[0] == shown[1]
        assert logged[0] == logged[1]
        assert len(logged[0]) == 1
        return response

    async def counted(self) -> list[dict[tuple[Any, ...], float]]:
        found = []
        for client in self._clients:
            text = (await client.get("/metrics")).text
            found.append(
                {
                    (sample.name, *sorted(sample.labels.items())): sample.value
                    for family in text_string_to_metric_families(text)
                    for sample in family.samples
                    if sample.name in {"hasat_http_requests_total", "hasat_rate_limited_total"}
                }
            )
        return found


def _shown(response: httpx2.Response) -> tuple[Any, ...]:
    headers = [(k, v if k not in _VOLATILE else "") for k, v in response.headers.multi_items()]
    request_id = response.headers["x-request-id"]
    return response.status_code, headers, response.text.replace(request_id, "")


async def test_both_paths_respond_alike(both: Both, store: Store) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    _, token = await create_key(store, "reader")
    revoked, old = await create_key(store, "old")
    await revoke_key(store, revoked.id)
    _, restricted = await create_key(store, "despatch", datasets=["edespatch"])
    known = {"Authorization": f"Bearer {token}"}
    found = await both.ask("GET", "/api/v1/einvoice/1234567890", known)
    etag = found.headers["etag"]
    again = {**known, "If-None-Match": etag}
    assert (await both.ask("GET", "/api/v1/einvoice/1234567890", again)).status_code == 304
    refused = await both.ask("GET", "/api/v1/einvoice/1234567890", {"X-Api-Key": restricted})
    assert refused.status_code == 403
    for _ in range(ROUNDS):
        number = f"{1234567888 + dice.randrange(8)}"
        path = dice.choice(
            [f"einvoice/{number}"] * 4
            + [f"check/{number}"] * 2
            + [f"check/{number[:9]}", f"check/{number}?receipt=false", "check"]
            + [f"edespatch/{number}", f"einvoice/{number[:9]}", f"einvoice/{number}0"]
            + [f"einvoice/{number}?asOf=2020-01-01", f"einvoice/{number}?x=1", "einvoice/changes"]
            + [f"einvoice/{number}/", f"einvoice/%31{number[1:]}", f"einvoice/{number}%0a"]
        )
        headers = dice.choice(
            [{"Authorization": f"Bearer {token}"}] * 6
            + [{"X-Api-Key": token}, {"Authorization": f"Bearer {old}"}, {}]
            + [{"Authorization": "Bearer nonsense"}, {"X-Api-Key": restricted}]
            + [{"X-Api-Key": token, "Authorization": f"Bearer {token}"}]
        )
        if dice.random() < 0.5:
            headers["If-None-Match"] = dice.choice([etag, "*", '"x"', f'"x", {etag}'])
        headers["Accept-Language"] = dice.choice(["tr", "en", "tr;q=0.1,en", ""])
        headers["Accept-Encoding"] = dice.choice(["gzip", "zstd", "identity", "br"])
        headers["Host"] = dice.choice(["localhost"] * 9 + ["evil.example"])
        headers["X-Request-Id"] = dice.choice(["request-17", "short", "x" * 65])
        method = dice.choice(["GET"] * 8 + ["HEAD", "POST", "OPTIONS"])
        await both.ask(method, f"/api/v1/{path}", headers)
    lean, general = await both.counted()
    assert lean == general


async def test_a_key_that_is_revoked_or_limited_is_refused(both: Both, store: Store) -> None:
    _, token = await create_key(store, "slow", per_minute=2)
    headers = {"Authorization": f"Bearer {token}"}
    found = [await both.ask("GET", "/api/v1/einvoice/1234567890", headers) for _ in range(3)]
    # Both apps draw from one bucket.
    assert found[-1].status_code == 429


async def test_the_etag_is_the_digest_of_the_published_body(
    both: Both, app: FastAPI, store: Store
) -> None:
    _, token = await create_key(store, "reader")
    headers = {"Authorization": f"Bearer {token}"}
    for number in range(len(TITLES)):
        response = await both.ask("GET", f"/api/v1/einvoice/{1234567890 + number}", headers)
        async with store.connection() as conn:
            cursor = await conn.execute(
                "SELECT body FROM core.einvoice WHERE key = %s", [f"{1234567890 + number}"]
            )
            row = await cursor.fetchone()
        assert row is not None
        assert response.headers["etag"] == f'W/"{record_digest(canonical(row[0])).hex()}"'


async def test_lookups_that_wait_share_a_statement_that_begins_after_them(
    app: FastAPI, store: Store
) -> None:
    lookup = RecordLookup(store, EINVOICE)
    statements = 0
    read = store.read_texts

    async def counted(*arguments: Any) -> Any:
        nonlocal statements
        statements += 1
        return await read(*arguments)

    store.read_texts = counted  # type: ignore[method-assign]
    keys = [f"{1234567888 + n % 8}" for n in range(200)]
    found = await asyncio.gather(*(lookup.find_one(key) for key in keys))
    assert statements <= 3
    for key, (record, _) in zip(keys, found, strict=True):
        assert (record is None) == (not 0 <= int(key) - 1234567890 < len(TITLES))
        assert record is None or key in record.body
    # What is committed before a lookup begins is in its result.
    for number in range(5):
        pending = asyncio.create_task(lookup.find_one("1234567890"))
        async with store.connection() as conn:
            await conn.execute(
                "UPDATE core.einvoice SET body = body || jsonb_build_object('title', %s::text)",
                [f"version {number}"],
            )
        record, _ = await lookup.find_one("1234567890")
        assert record is not None
        assert f"version {number}" in record.body
        await pending


async def test_a_lookup_that_fails_fails_for_all_who_wait_and_the_next_one_works(
    app: FastAPI, store: Store
) -> None:
    lookup = RecordLookup(store, EINVOICE)
    await lookup.find_one("1234567890")
    async with store.connection() as conn:
        await conn.execute("ALTER TABLE core.einvoice RENAME TO gone")
    found = await asyncio.gather(
        *(lookup.find_one("1234567890") for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(one, Exception) for one in found)
    async with store.connection() as conn:
        await conn.execute("ALTER TABLE core.gone RENAME TO einvoice")
    record, _ = await lookup.find_one("1234567890")
    assert record is not None


async def test_a_lookup_survives_the_loss_of_its_connection(app: FastAPI, store: Store) -> None:
    lookup = RecordLookup(store, EINVOICE)
    for _ in range(5):
        await lookup.find_one("1234567890")
        async with store.connection() as conn:
            await conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
