"""`hasat replica` as a person types it, and the class for programs without an event loop."""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hasat.api.keys import create_key
from hasat.replica import BlockingReplica
from hasat.settings import Settings
from hasat.store import Store
from support.forks import run_hasat
from support.replica_shop import Shop, open_shop

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

TOYS = {f"toy {n}": {"n": n, "name": "ÇİĞ"} for n in range(5)}


@dataclass
class Done:
    """The result of a command."""

    code: int
    out: str
    said: str


async def hasat(*words: str, **environ: str) -> Done:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HASAT_")}
    done = await asyncio.to_thread(run_hasat, "replica", *words, environ=kept | environ)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
async def shop(store: Store, settings: Settings) -> AsyncIterator[Shop]:
    async with open_shop(store, settings) as shop:
        await shop.sell(TOYS)
        yield shop


async def test_once_verified_and_looked_up(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "toys.db"
    to = ("--to", f"sqlite:///{file}")
    source = ("--from", shop.address)
    first = await hasat("toys", *source, *to, "--once", "--verify", "--json")
    assert first.code == 0, first.said
    assert json.loads(first.out)["records"] == 5
    assert "All rows are equal to those of the server" in first.said
    assert (await hasat("toys", *source, *to, "--once")).code == 3
    found = await hasat("toys", *to, "--get", "toy 3")
    assert json.loads(found.out) == TOYS["toy 3"]
    missing = await hasat("toys", *to, "--get", "toy 9")
    assert (missing.code, missing.out) == (1, "")
    assert "no record 'toy 9'" in missing.said
    with closing(sqlite3.connect(file)) as conn, conn:
        conn.execute("DELETE FROM toys WHERE key = 'toy 1'")
    different = await hasat("toys", *source, *to, "--once", "--verify")
    assert different.code == 1
    assert "differs from the server" in different.said
    assert "Traceback" not in different.said


async def test_a_wrong_call_is_said_in_a_sentence() -> None:
    done = await hasat("toys", "--to", "sqlite:///x.db")
    assert done.code == 2
    assert "--from is missing" in done.said
    assert "Traceback" not in done.said


async def test_nothing_is_made_by_looking_where_there_is_no_replica(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    done = await hasat("toys", "--to", f"sqlite:///{file}", "--get", "x")
    assert done.code == 1
    assert "There is no replica" in done.said
    assert not file.exists()


async def test_the_key_opens_the_server_and_is_never_printed(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    closed = settings.model_copy(
        update={"authentication": settings.authentication.model_copy(update={"enabled": True})}
    )
    _, key = await create_key(store, "a replica")
    async with open_shop(store, closed) as shop:
        await shop.sell(TOYS)
        words = ("toys", "--from", shop.address, "--to", f"sqlite:///{tmp_path}/toys.db", "--once")
        wrong = await hasat(*words, "--key", "hasat_wrong")
        assert wrong.code == 1
        assert "HASAT_REPLICA_KEY" in wrong.said
        right = await hasat(*words, HASAT_REPLICA_KEY=key, HASAT_LOG_LEVEL="debug")
        assert right.code == 0, right.said
    for done in (wrong, right):
        assert key not in done.out + done.said
        assert "hasat_wrong" not in done.out + done.said


async def test_a_program_without_an_event_loop(shop: Shop, tmp_path: Path) -> None:
    def use() -> None:
        target = f"sqlite:///{tmp_path}/toys.db"
        with BlockingReplica("toys", shop.address, target) as replica:
            assert replica.catch_up().records == 5
            replica.verify()
            assert replica.get("toy 2") == TOYS["toy 2"]
            assert replica.state.seq == 0
            asyncio.run_coroutine_threadsafe(shop.sell({}, archive=False), loop).result()
            assert next(replica.follow()).records == 0

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(use)
