"""Cumulative deltas: any state between their ends becomes the state at their end."""

import gzip
import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pyarrow.parquet as pq
import pytest

from hasat.feed.archive import write_archives
from hasat.feed.archive.catalog import list_archives, list_deltas
from hasat.feed.archive.cumulative import CumulativeDelta
from hasat.settings import Settings
from hasat.source import Source
from hasat.sources.gib.datasets import EINVOICE
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import FakeDatabaseClock, ThrowAwayDatabase, fake_database_clock
from support.archive_tools import GIB, files_in, taxpayers
from support.feed_toys import State, run, state_digest

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LISTS = Source("gib", "lists", datasets=(EINVOICE,))
API = "/api/v1/einvoice/deltas"


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [GIB]


@pytest.fixture
async def clock(database: ThrowAwayDatabase) -> AsyncIterator[FakeDatabaseClock]:
    async with fake_database_clock(database.url, START) as clock:
        yield clock


@pytest.fixture
async def store(clock: FakeDatabaseClock, settings: Settings) -> AsyncIterator[Store]:
    async with open_store(settings) as store:
        yield store


@pytest.fixture
def sources() -> list[Source]:
    return [LISTS]


def _path(settings: Settings, delta: CumulativeDelta) -> Path:
    return settings.home / settings.archives.base_path / delta.path


def _read(settings: Settings, delta: CumulativeDelta) -> tuple[dict[str, Any], list[Any]]:
    """The facts and the changes in a file: kind, number, key and body of each."""
    path = _path(settings, delta)
    if delta.format == "parquet":
        table = pq.read_table(path)
        facts = {
            name.decode().removeprefix("hasat."): value.decode()
            for name, value in table.schema.metadata.items()
        }
        rows = table.select(["changeType", "seq", "key", "body"]).to_pylist()
        titles = table["title"].to_pylist()
        bodies = [None if row["body"] is None else json.loads(row["body"]) for row in rows]
        assert titles == [None if body is None else body["title"] for body in bodies]
        changes = [
            (row["changeType"], row["seq"], row["key"], body)
            for row, body in zip(rows, bodies, strict=True)
        ]
        return facts, changes
    header, *lines = gzip.decompress(path.read_bytes()).splitlines()
    found = [json.loads(line) for line in lines]
    return json.loads(header), [
        (one["changeType"], one["seq"], one["key"], one["body"]) for one in found
    ]


def _apply(state: State, changes: list[Any]) -> State:
    after = dict(state)
    for kind, _, key, body in changes:
        if kind == "removed":
            after.pop(key, None)
        else:
            after[key] = body
    return after


def _churn(dice: random.Random, state: State, spare: State) -> State:
    state = dict(state)
    for key in dice.sample(sorted(spare), 4):
        if key in state and dice.random() < 0.4:
            del state[key]
        else:
            # Now and then what it was before.
            state[key] = {**spare[key], "title": dice.choice([spare[key]["title"], "Yeni Ünvan"])}
    return state


async def test_any_state_in_between_becomes_the_state_at_the_end(
    store: Store, settings: Settings, clock: FakeDatabaseClock
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    spare = taxpayers(30, dice)
    state: State = dict(list(spare.items())[:20])
    # (seq, commit time, state) of every version.
    versions: list[tuple[int, datetime, State]] = []
    for step in range(45):
        await clock.set_time(clock.now + dice.choice([DAY / 3, DAY, DAY * 2]))
        version = await run(store, state, dataset=EINVOICE, retention_days=dice.choice([20, 60]))
        versions.append((version.heads["einvoice"], version.committed_at, state))
        if step in (0, 10, 44):
            await write_archives(store, settings, EINVOICE, force=True)
            async with store.connection() as conn:
                row = await (await conn.execute("SELECT floor FROM feed.head")).fetchone()
            assert row is not None
            deltas = [
                one
                for one in await list_deltas(store, "einvoice")
                if one.seq == version.heads["einvoice"]
            ]
            assert [(one.days, one.format) for one in deltas] == [
                (days, format_) for days in (1, 7, 30) for format_ in ("ndjson", "parquet")
            ]
            for delta in deltas:
                _check(settings, delta, versions, clock.now, row[0])
        state = _churn(dice, state, spare)


def _check(
    settings: Settings,
    delta: CumulativeDelta,
    versions: list[tuple[int, datetime, State]],
    now: datetime,
    floor: int,
) -> None:
    usable = [one for one in versions if one[0] >= floor]
    old = [one for one in usable if one[1] <= now - DAY * delta.days]
    seq, committed_at, before = old[-1] if old else usable[0]
    assert (delta.from_seq, delta.from_at) == (seq, committed_at), delta.name
    facts, changes = _read(settings, delta)
    assert facts["hasat"] == "cumulative-delta"
    assert str(facts["from"]) == str(delta.from_cursor)
    assert str(facts["cursor"]) == str(delta.cursor)
    assert facts["digest"] == delta.digest.hex()
    assert delta.from_digest == state_digest(before)
    keys = [key for _, _, key, _ in changes]
    assert keys == sorted(set(keys))
    for _, at, between in versions:
        if at >= committed_at:
            assert state_digest(_apply(between, changes)) == delta.digest, (delta.name, at)
    counts = {kind: sum(1 for one in changes if one[0] == kind) for kind in ("added", "modified")}
    assert counts == {"added": delta.added, "modified": delta.modified}
    assert delta.removed == len(changes) - sum(counts.values())
    after = versions[-1][2]
    for kind, _, key, body in changes:
        assert body == after.get(key)
        assert kind == ("removed" if body is None else "modified" if key in before else "added")


async def test_deltas_are_files_that_may_be_cached_and_go_with_their_archives(
    client: httpx2.AsyncClient, store: Store, settings: Settings, clock: FakeDatabaseClock
) -> None:
    pending = await client.get(f"{API}/last/7")
    assert pending.status_code == 503
    state = taxpayers(20, random.Random(3))
    for step in range(3):
        await clock.set_time(clock.now + DAY)
        state = {**state, "0000000007": {**state["0000000007"], "title": f"{step}"}}
        await run(store, state, dataset=EINVOICE)
    await write_archives(store, settings, EINVOICE)
    listed = (await client.get(API)).json()
    assert [(one["days"], one["format"]) for one in listed[:2]] == [(1, "ndjson"), (1, "parquet")]
    for one in listed:
        path = f"{API}/files/{one['fileName']}"
        answer = await client.get(path)
        assert answer.status_code == 200
        assert len(answer.content) == one["sizeBytes"]
        assert answer.headers["ETag"] == f'"{one["sha256"]}"'
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["X-Hasat-From"] == one["from"]["cursor"]
        assert answer.headers["X-Hasat-Cursor"] == one["to"]["cursor"]
        again = await client.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert again.status_code == 304
        part = await client.get(path, headers={"Range": "bytes=0-9"})
        assert (part.status_code, part.content) == (206, answer.content[:10])
        latest = await client.get(f"{API}/last/{one['days']}", params={"format": one["format"]})
        assert latest.content == answer.content
    assert (await client.get(f"{API}/files/nothing")).status_code == 404
    assert (await client.get(f"{API}/last/2")).status_code in (400, 422)
    # What is at the end is where the feed goes on.
    after = listed[0]["to"]["cursor"]
    page = await client.get("/api/v1/einvoice/changes", params={"after": after})
    assert page.json()["changes"] == []

    async with store.connection() as conn:
        await conn.execute("UPDATE feed.archive SET created_at = %s", [START - DAY * 60])
    await run(store, {**state, "0000000014": state["0000000007"]}, dataset=EINVOICE)
    await write_archives(store, settings, EINVOICE)
    names = {one.name for one in await list_deltas(store, "einvoice")}
    assert len(names) == 6
    assert not names & {one["fileName"] for one in listed}
    archives = {one.name for one in await list_archives(store, "einvoice")}
    assert files_in(settings) == {f"einvoice/{name}" for name in names | archives}
