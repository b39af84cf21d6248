"""The history beyond the change retention: no state of a record is lost before its retention."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from hasat.errors import UsageError
from hasat.feed.changes import ExpiredError, expire_history, history, record_as_of
from hasat.feed.encoding import canonical
from hasat.feed.rebuild import StagedRebuild
from hasat.feed.reconcile import Reconcile, pack
from hasat.settings import Settings
from hasat.store import Store, open_store
from hasat.store.queries import load_query
from hasat.testing.database import FakeDatabaseClock, ThrowAwayDatabase, fake_database_clock
from support.feed_toys import TOYS, State, make_table, run

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
KEYS = [f"toy {n}" for n in range(8)]


@pytest.fixture
async def clock(database: ThrowAwayDatabase) -> AsyncIterator[FakeDatabaseClock]:
    async with fake_database_clock(database.url, START) as clock:
        yield clock


@pytest.fixture
async def store(clock: FakeDatabaseClock, settings: Settings) -> AsyncIterator[Store]:
    async with open_store(settings) as store:
        await make_table(store)
        yield store


async def _as_of(store: Store, key: str, at: datetime) -> Any:
    async with store.snapshot() as conn:
        return (await record_as_of(conn, TOYS, key, at)).body


def _churn(dice: random.Random, state: State, step: int) -> State:
    state = {key: body for key, body in state.items() if dice.random() < 0.75}
    for key in dice.sample(KEYS, dice.randrange(4)):
        state[key] = {"n": dice.choice([0, step]), "ad": dice.choice(["ışık", "IŞIK", None])}
    return state


async def _damage_and_rebuild(store: Store, state: State) -> datetime:
    """Rebuild from responses that are not what was published, over a table that is not either."""
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO core.toys (key, body, digest) VALUES ('stray', '{}', '\\x00')"
        )
    async with Reconcile.begin(store, [TOYS]) as work:
        staged = StagedRebuild(work, [TOYS])
        await staged.open()
        await staged.add("toys", pack([(key, canonical(body)) for key, body in state.items()]))
        [result] = await staged.finish(run=None, retention_days=3, approving=0)
    assert result.how == "new_epoch"
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT committed_at FROM feed.head")).fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


async def test_every_past_state_equals_a_replay_whatever_happened(
    store: Store, clock: FakeDatabaseClock
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth: State = {key: {"n": 0} for key in KEYS[:5]}
    versions: list[tuple[datetime, State]] = []
    gaps: list[tuple[datetime, datetime]] = []
    for step in range(40):
        await clock.set_time(clock.now + dice.choice([DAY / 4, DAY, 2 * DAY]))
        happening = dice.random()
        if step and happening < 0.08:
            # Other bodies, so that the result is never what was published.
            truth = {**_churn(dice, truth, step), "rebuilt": {"step": step}}
            versions.append((await _damage_and_rebuild(store, truth), truth))
            continue
        if step and happening < 0.16:
            async with store.connection() as conn:
                await conn.execute(load_query("hasat.store", "new_epoch"))
            gaps.append((versions[-1][0], clock.now))
            continue
        truth = truth if dice.random() < 0.1 else _churn(dice, truth, step)
        version = await run(store, truth, retention_days=dice.choice([3, 3, 0, 10]))
        versions.append((version.committed_at, truth))
    await clock.set_time(clock.now + DAY)
    async with store.connection() as conn:
        assert (await conn.execute("SELECT FROM feed.history")).rowcount > 0

    moments = [at for at, _ in versions] + [START + DAY * 80 * dice.random() for _ in range(60)]
    for at in moments:
        then = [state for committed_at, state in versions if committed_at <= at]
        for key in [*KEYS, "rebuilt", "stray"]:
            if at > clock.now:
                with pytest.raises(UsageError):
                    await _as_of(store, key, at)
            elif not then or any(after < at < until for after, until in gaps):
                with pytest.raises(ExpiredError):
                    await _as_of(store, key, at)
            elif key != "stray":
                assert await _as_of(store, key, at) == then[-1].get(key), (key, at)

    for key in [*KEYS, "rebuilt"]:
        states = [state.get(key) for _, state in versions]
        expected = [(before, after) for before, after in pairwise(states) if before != after]
        async with store.connection() as conn:
            found = await history(conn, TOYS, key)
        assert [(one.before, one.body) for one in found] == expected
        assert [one.changed_at for one in found] == sorted(one.changed_at for one in found)


async def test_a_past_state_that_retention_deleted_is_refused_and_later_ones_are_not(
    store: Store, clock: FakeDatabaseClock
) -> None:
    versions = []
    for step in range(6):
        await clock.set_time(clock.now + DAY)
        version = await run(store, {"toy": {"n": step}}, retention_days=0)
        versions.append(version.committed_at)
    async with store.connection() as conn:
        assert await expire_history(conn, DAY * 2) == 3
        assert await expire_history(conn, DAY * 2) == 0
    cutoff = clock.now - DAY * 2
    with pytest.raises(ExpiredError, match="no history before"):
        await _as_of(store, "toy", cutoff - timedelta(microseconds=1))
    assert await _as_of(store, "toy", cutoff) == {"n": 3}
    assert await _as_of(store, "toy", versions[-1]) == {"n": 5}
    with pytest.raises(ExpiredError, match="first version of toys"):
        await _as_of(store, "toy", versions[0] - timedelta(microseconds=1))
    with pytest.raises(UsageError, match="future"):
        await _as_of(store, "toy", clock.now + timedelta(microseconds=1))


async def test_the_intervals_of_a_record_join_without_gap(
    store: Store, clock: FakeDatabaseClock
) -> None:
    for step in range(5):
        await clock.set_time(clock.now + DAY)
        state = {"toy": {"n": step}} if step != 2 else {}
        await run(store, {"other": {}, **state}, retention_days=2)
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT body, valid_from, valid_to FROM feed.past_state WHERE key = 'toy' ORDER BY 3"
        )
        rows = await cursor.fetchall()
    assert [body for body, _, _ in rows] == [{"n": 0}, {"n": 1}, {"n": 3}]
    assert rows[0][1] is None
    assert rows[1][1] == rows[0][2]
    assert rows[2][1] == rows[1][2] + DAY
