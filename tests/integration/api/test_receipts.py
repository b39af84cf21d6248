"""Receipts over HTTP: of exactly the answer and its version, in one chain, for their owner only."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result

from hasat.api.app import create_app
from hasat.api.diagnostics import check_database
from hasat.api.keys import create_key
from hasat.cli import app as command_line
from hasat.clock import local_time
from hasat.console.runtime import source_migrations
from hasat.feed.dataset import Dataset
from hasat.jobs import Catalogue
from hasat.receipts.jws import Receipt, parse_jwks, verify
from hasat.receipts.ledger import (
    BrokenChainError,
    consult,
    expire_receipts,
    issue,
    list_receipts,
    listed_keys,
    verify_chain,
)
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import MigrationSet, Store, open_store
from hasat.store.store import connect
from hasat.testing.database import ThrowAwayDatabase, fake_database_clock
from hasat.testing.http import app_client
from support.feed_toys import State, run, state_digest

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

KITES = Dataset("kites", "toy_shop", "kites, for tests")
SHOP = Source("toy_shop", "toys", datasets=(KITES,))


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return [*source_migrations(), SHOP.migration_set]


@pytest.fixture
async def app(settings: Settings, store: Store) -> FastAPI:
    return create_app(settings, store, Catalogue.of([], settings), [SHOP])


async def commit(store: Store, state: State) -> None:
    await run(store, state, dataset=KITES)


async def ask(client: httpx2.AsyncClient, key: str, **query: Any) -> tuple[Receipt, Any]:
    """Return the verified receipt of a lookup, and the answer without it."""
    response = await client.get(f"/api/v1/kites/{key}", params={"receipt": "true", **query})
    answer = response.json()
    given = answer.pop("receipt")
    keys = parse_jwks((await client.get("/.well-known/jwks.json")).content)
    receipt = verify(given["jws"], keys)
    assert receipt.claims["jti"] == given["id"]
    return receipt, answer


async def test_a_receipt_states_the_question_the_answer_and_the_version(
    client: httpx2.AsyncClient, store: Store
) -> None:
    state: State = {"a/b ş": {"title": "IŞIK"}}
    await commit(store, state)
    receipt, answer = await ask(client, "a/b ş")
    assert receipt.claims["response"] == answer
    assert answer["body"] == {"title": "IŞIK"}
    assert receipt.claims["request"] == {
        "method": "GET",
        "path": "/api/v1/kites/a/b ş",
        "query": {},
        "datasets": ["kites"],
        "identifier": "a/b ş",
    }
    head = (await client.get("/api/v1/kites/digest")).json()
    version = receipt.claims["version"]
    assert version["kites"]["epoch"] == head["epoch"]
    assert version["kites"]["seq"] == head["head"]
    assert version["kites"]["digest"] == head["digest"] == state_digest(state).hex()
    assert datetime.fromisoformat(version["committedAt"]).utcoffset() == timedelta(hours=3)

    at = local_time(await store.now())
    await commit(store, {"other": {}})
    missing, problem = await ask(client, "a/b ş")
    assert problem["status"] == missing.claims["response"]["status"] == 404
    past, answer = await ask(client, "a/b ş", asOf=at)
    assert past.claims["request"]["query"] == {"asOf": at}
    assert past.claims["response"]["body"] == answer["body"] == {"title": "IŞIK"}
    assert await verify_chain(store, await listed_keys(store)) == 3


async def test_the_version_is_that_of_the_answer_while_runs_commit(
    client: httpx2.AsyncClient, store: Store
) -> None:
    states: dict[str, int] = {}
    done = asyncio.Event()

    async def commit_many() -> None:
        for n in range(25):
            state = {key: {"n": n} for key in ("a", "b", "c")}
            states[state_digest(state).hex()] = n
            await commit(store, state)
        done.set()

    async def ask_many(key: str) -> None:
        while not done.is_set():
            receipt, answer = await ask(client, key)
            assert states[receipt.claims["version"]["kites"]["digest"]] == answer["body"]["n"]

    await commit(store, {key: {"n": -1} for key in ("a", "b", "c")})
    states[state_digest({key: {"n": -1} for key in ("a", "b", "c")}).hex()] = -1
    await asyncio.gather(commit_many(), *(ask_many(key) for key in ("a", "b", "c", "a")))
    count = await verify_chain(store, await listed_keys(store))
    assert count >= 4


async def test_concurrent_receipts_of_several_homes_are_one_chain(
    app: FastAPI, settings: Settings, store: Store, tmp_path: Path
) -> None:
    await commit(store, {"a": {"n": 1}})
    homes = [settings.model_copy(update={"home": tmp_path / name}) for name in ("one", "two")]

    async def issue_many(home: Settings) -> None:
        async with open_store(home) as own:
            for n in range(30):
                async with own.snapshot() as conn:
                    consulted = await consult(conn, [KITES], "a")
                await issue(
                    own,
                    home,
                    consulted,
                    owner="key:x",
                    identifier="a",
                    request={"identifier": "a"},
                    response={"n": n},
                )

    await asyncio.gather(*(issue_many(home) for home in homes * 2))
    found = await list_receipts(store, owner=None, limit=1000)
    assert [one.number for one in found] == list(range(120, 0, -1))
    assert len({one.kid for one in found}) == 2
    keys = await listed_keys(store)
    assert await verify_chain(store, keys) == 120
    assert await verify_chain(store, keys, newest=7) == 7


TAMPERING = {
    "another answer": "UPDATE serve.receipt SET jws = (SELECT jws FROM serve.receipt WHERE number"
    " = 2) WHERE number = 3",
    "another identifier": "UPDATE serve.receipt SET identifier = 'b' WHERE number = 3",
    "another time": "UPDATE serve.receipt SET issued_at = issued_at + interval '1 s'"
    " WHERE number = 3",
    "one byte": "UPDATE serve.receipt SET jws = overlay(jws placing"
    " chr(ascii(substr(jws, 200)) # 1) from 200 for 1) WHERE number = 3",
    "a removed one": "DELETE FROM serve.receipt WHERE number = 3",
    "a removed one, renumbered": "DELETE FROM serve.receipt WHERE number = 3;"
    " UPDATE serve.receipt SET number = number - 1 WHERE number > 3;"
    " UPDATE serve.receipt_chain SET number = number - 1",
    "the newest": "DELETE FROM serve.receipt WHERE number = 5",
    "the oldest": "DELETE FROM serve.receipt WHERE number = 1",
    "the oldest, as if expired": "DELETE FROM serve.receipt WHERE number = 1;"
    " UPDATE serve.receipt_chain SET floor = 1",
    "a copy": "INSERT INTO serve.receipt SELECT 6, gen_random_uuid(), identifier, datasets, owner,"
    " kid, issued_at, jws, hash FROM serve.receipt WHERE number = 5;"
    " UPDATE serve.receipt_chain SET number = 6",
}


@pytest.mark.parametrize("statement", TAMPERING.values(), ids=TAMPERING)
async def test_a_changed_chain_is_found(
    client: httpx2.AsyncClient, settings: Settings, store: Store, statement: str
) -> None:
    await commit(store, {"a": {"n": 1}})
    for _ in range(5):
        await ask(client, "a")
    keys = await listed_keys(store)
    assert await verify_chain(store, keys) == 5
    async with store.connection() as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with conn.transaction():
                await conn.execute("UPDATE serve.receipt SET owner = 'me'")
        await conn.execute("ALTER TABLE serve.receipt DISABLE TRIGGER ALL")
        await conn.execute(statement)
    with pytest.raises(BrokenChainError):
        await verify_chain(store, keys)
    findings = await check_database(store, settings, [])
    assert [one.grade for one in findings if one.check == "receipts"] == ["failure"]


async def test_receipts_leave_by_age_alone_and_the_rest_can_be_verified(
    database: ThrowAwayDatabase, settings: Settings
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with fake_database_clock(database.url, start) as clock, open_store(settings) as store:
        app = create_app(settings, store, Catalogue.of([], settings), [SHOP])
        async with app_client(app) as client:
            await commit(store, {"a": {"n": 1}})
            for _ in range(6):
                await clock.set_time(clock.now + timedelta(days=20))
                await ask(client, "a")

            async def expire(days: int) -> int:
                async with store.connection() as conn:
                    return await expire_receipts(conn, timedelta(days=days))

            assert [await expire(90), await expire(90), await expire(50)] == [1, 0, 2]
            # Whatever is asked for, 30 days stay.
            assert await expire(1) == 1
            assert await verify_chain(store, await listed_keys(store)) == 2
            await ask(client, "a")
            assert await verify_chain(store, await listed_keys(store)) == 3
            await clock.set_time(clock.now + timedelta(days=100))
            assert await expire(90) == 3
            await ask(client, "a")
            assert await verify_chain(store, await listed_keys(store)) == 1
    for statement in ("DELETE FROM serve.receipt", "TRUNCATE serve.receipt"):
        async with await connect(database.url) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(statement)


async def test_a_read_key_sees_its_own_receipts_only(settings: Settings, store: Store) -> None:
    public = settings.model_copy(
        update={"serve": settings.serve.model_copy(update={"host": "192.0.2.10"})}
    )
    await commit(store, {"a": {"n": 1}, "b": {"n": 2}})
    app = create_app(public, store, Catalogue.of([], public), [SHOP])
    keys = {
        name: (await create_key(store, name, scope))[1]
        for name, scope in (("mine", "read"), ("yours", "read"), ("ops", "operate"))
    }
    async with app_client(app) as client:

        async def get(name: str, path: str, **query: Any) -> httpx2.Response:
            headers = {"Authorization": f"Bearer {keys[name]}"}
            return await client.get(f"/api/v1{path}", params=query, headers=headers)

        mine = (await get("mine", "/kites/a", receipt="true")).json()["receipt"]
        yours = (await get("yours", "/kites/b", receipt="true")).json()["receipt"]
        listed = {
            name: [one["id"] for one in (await get(name, "/receipts")).json()["items"]]
            for name in keys
        }
        assert listed == {
            "mine": [mine["id"]],
            "yours": [yours["id"]],
            "ops": [yours["id"], mine["id"]],
        }
        found = await get("ops", "/receipts", identifier="a")
        assert [one["id"] for one in found.json()["items"]] == [mine["id"]]
        assert (await get("mine", "/receipts", identifier="b")).json()["items"] == []
        path = f"/receipts/{mine['id']}"
        assert (await get("yours", path)).status_code == 404
        assert (await get("mine", path)).json()["jws"] == mine["jws"]
        assert (await get("ops", path, format="jws")).text == mine["jws"]
        assert (await get("mine", "/receipts/nonsense")).status_code in (400, 422)
        # Who verifies has no key.
        assert (await client.get("/.well-known/jwks.json")).status_code == 200
        assert (await client.get(f"/api/v1{path}")).status_code == 401


async def test_pages_of_receipts_meet_and_other_formats_are_refused(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await commit(store, {"a": {"n": 1}})
    for _ in range(5):
        await ask(client, "a")
    seen, query = [], {"limit": 2}
    while True:
        page = (await client.get("/api/v1/receipts", params=query)).json()
        seen += [one["number"] for one in page["items"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert seen == [5, 4, 3, 2, 1]
    refused = await client.get("/api/v1/kites/a", params={"receipt": "true", "format": "csv"})
    assert refused.status_code == 400
    assert (await client.head("/api/v1/kites/a?receipt=true")).status_code == 200
    assert (await client.get("/api/v1/receipts")).json()["items"][0]["number"] == 5


def call(database: ThrowAwayDatabase, home: Path, *words: str) -> Result:
    environ = {"HASAT_HOME": str(home), "HASAT_DATABASE_URL": database.url}
    result = CliRunner().invoke(command_line, words, env=environ)
    assert result.exit_code == 0, result.output
    return result


async def _issue(settings: Settings, count: int) -> None:
    async with open_store(settings) as store:
        for n in range(count):
            async with store.snapshot() as conn:
                consulted = await consult(conn, [KITES], "a")
            await issue(
                store,
                settings,
                consulted,
                owner="local",
                identifier="a",
                request={"identifier": "a"},
                response={"n": n},
            )


def test_a_restored_backup_keeps_the_receipts_that_are_newer(
    database: ThrowAwayDatabase, settings: Settings, tmp_path: Path, background: Any
) -> None:
    async def prepare() -> None:
        async with open_store(settings) as store:
            await commit(store, {"a": {"n": 1}})

    background.call(prepare)
    background.call(_issue, settings, 3)
    backup = str(tmp_path / "monday.dump")
    call(database, tmp_path, "db", "backup", backup)
    call(database, tmp_path, "receipt", "rotate")
    background.call(_issue, settings, 2)
    before = call(database, tmp_path, "receipt", "list", "--json").stdout
    for _ in range(2):
        call(database, tmp_path, "db", "restore", backup, "--yes")
        assert json.loads(call(database, tmp_path, "receipt", "check", "--json").stdout) == {
            "receipts": 5
        }
        assert call(database, tmp_path, "receipt", "list", "--json").stdout == before
    background.call(_issue, settings, 1)
    found = json.loads(call(database, tmp_path, "receipt", "list", "--json").stdout)
    assert [one["number"] for one in found] == [6, 5, 4, 3, 2, 1]
    call(database, tmp_path, "receipt", "check")
    assert list(tmp_path.glob("receipts-before-restore-*")) == []

    jws = call(database, tmp_path, "receipt", "show", found[-1]["id"], "--jws").stdout
    (tmp_path / "answer.jws").write_text(jws)
    call(database, tmp_path, "receipt", "verify", str(tmp_path / "answer.jws"))
