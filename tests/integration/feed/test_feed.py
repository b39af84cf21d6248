"""The feed's rules; each test tries to break one."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from psycopg import sql

from hasat.errors import GoneError, HasatError, UnavailableError, UsageError
from hasat.feed.changes import (
    Change,
    ExpiredError,
    changes_after,
    changes_between,
    history,
    record_as_of,
)
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset, Scope
from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Reconcile, Record
from hasat.store import Store
from support.feed_toys import TOYS, State, head_of, make_table, mirror, run, state_digest

pytestmark = pytest.mark.anyio

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def _table(store: Store) -> None:
    await make_table(store)


def _apply(replica: State, change: Change) -> None:
    if change.kind == "removed":
        del replica[change.key]
    else:
        assert (change.kind == "added") == (change.key not in replica)
        replica[change.key] = change.body


def _churn(dice: random.Random, state: State) -> None:
    for _ in range(dice.randrange(25)):
        key = f"toy {dice.randrange(60)}"
        if dice.random() < 0.3:
            state.pop(key, None)
        else:
            state[key] = {"n": dice.randrange(4), "ad": dice.choice(["ışık", 'a"\\', "\t", "I"])}


async def test_replicas_of_both_protocols_equal_the_server_after_any_history(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth: State = {"toy 1": {"n": 1}}
    first = await run(store, truth)
    by_cursor, by_time = dict(truth), dict(truth)
    cursor: Cursor | None = None
    since = first.committed_at
    for _ in range(25):
        _churn(dice, truth)
        before = await head_of(store)
        version = await run(store, truth)
        assert await mirror(store) == truth
        head = await head_of(store)
        assert head["digest"] == state_digest(truth)
        assert head["records"] == len(truth)
        assert head["seq"] == before["seq"] + version.counts["toys"].total
        if dice.random() < 0.4:
            continue
        async with store.connection() as conn:
            seen = cursor.seq if cursor else 0
            while True:
                page = await changes_after(conn, "toys", cursor, limit=dice.randint(1, 9))
                for change in page.changes:
                    assert change.seq == seen + 1, "numbers are contiguous"
                    seen = change.seq
                    _apply(by_cursor, change)
                cursor = page.next
                if page.up_to_date:
                    break
            size, number, collected = dice.randint(1, 9), 1, 0
            while True:
                span = await changes_between(conn, "toys", since, None, page=number, size=size)
                for change in span.changes:
                    _apply(by_time, change)
                collected += len(span.changes)
                if number * size >= span.total:
                    break
                number += 1
            assert collected == span.total
            since = span.until
        assert by_cursor == truth
        assert by_time == truth


async def test_the_first_filling_writes_no_changes(store: Store) -> None:
    version = await run(store, {"a": {"n": 1}, "b": {"n": 2}})
    assert version.counts["toys"].added == 2
    assert (await head_of(store))["seq"] == 0
    async with store.connection() as conn:
        page = await changes_after(conn, "toys", None, limit=10)
    assert not page.changes
    assert page.up_to_date


async def test_a_run_without_changes_is_visible_and_moves_until(store: Store) -> None:
    first = await run(store, {"a": {"n": 1}})
    second = await run(store, {"a": {"n": 1}})
    assert not second.changed
    assert second.committed_at > first.committed_at
    async with store.connection() as conn:
        span = await changes_between(conn, "toys", first.committed_at, None, page=1, size=10)
    assert (span.total, span.until) == (0, second.committed_at)


async def test_a_poll_during_an_open_run_loses_nothing(store: Store) -> None:
    """The published original answers `until` = now here, and the rows of the run are lost."""
    first = await run(store, {"a": {"n": 1}})
    async with Reconcile.begin(store, [TOYS]) as work:
        await work.stage(TOYS, [Record("a", canonical({"n": 2}))])
        await work.diff(TOYS)
        await work.write(run=None, retention_days=30)
        async with store.connection() as other:
            early = await changes_between(other, "toys", first.committed_at, None, page=1, size=10)
        assert early.total == 0
    async with store.connection() as conn:
        late = await changes_between(conn, "toys", early.until, None, page=1, size=10)
    assert [change.key for change in late.changes] == ["a"]


async def test_a_run_that_fails_changes_nothing(store: Store) -> None:
    await run(store, {"a": {"n": 1}})
    before = await head_of(store)
    with pytest.raises(RuntimeError, match="broken"):
        async with Reconcile.begin(store, [TOYS]) as work:
            await work.stage(TOYS, [Record("b", canonical({"n": 2}))])
            await work.diff(TOYS)
            await work.write(run=None, retention_days=30)
            raise RuntimeError("broken")
    assert await head_of(store) == before
    assert await mirror(store) == {"a": {"n": 1}}


async def test_many_writers_at_once_number_without_a_gap(store: Store) -> None:
    await run(store, {"start": {"n": 0}})
    everything = Scope({"keys": "own"}, sql.SQL("false"))

    async def write(writer: int) -> None:
        for step in range(5):
            await run(store, {f"{writer}-{step}": {"n": step}}, scope=everything)

    await asyncio.gather(*(write(writer) for writer in range(6)))
    async with store.connection() as conn:
        page = await changes_after(conn, "toys", None, limit=1000)
    assert [change.seq for change in page.changes] == list(range(1, 31))
    moments = [change.changed_at for change in page.changes]
    assert moments == sorted(set(moments)), "commit times rise strictly from run to run"


async def test_absence_is_removal_only_inside_the_scope(store: Store) -> None:
    await run(store, {"a1": {"shop": "a"}, "a2": {"shop": "a"}, "b1": {"shop": "b"}})
    shop_a = Scope({"shop": "a"}, sql.SQL("m.body ->> 'shop' = %(shop)s"), {"shop": "a"})
    version = await run(store, {"a1": {"shop": "a"}}, scope=shop_a)
    assert version.counts["toys"].removed == 1
    assert await mirror(store) == {"a1": {"shop": "a"}, "b1": {"shop": "b"}}


async def test_a_record_that_moves_into_the_scope_is_a_modification(store: Store) -> None:
    await run(store, {"x": {"shop": "b"}})
    shop_a = Scope({"shop": "a"}, sql.SQL("m.body ->> 'shop' = %(shop)s"), {"shop": "a"})
    version = await run(store, {"x": {"shop": "a"}}, scope=shop_a)
    assert version.counts["toys"].modified == 1
    assert await mirror(store) == {"x": {"shop": "a"}}


async def test_a_protected_record_is_not_removed_by_absence(store: Store) -> None:
    await run(store, {"a": {"n": 1}, "b": {"n": 1}})
    version = await run(store, {}, protected=("a",))
    assert version.counts["toys"].removed == 1
    assert await mirror(store) == {"a": {"n": 1}}


async def test_removal_and_return_are_two_changes_with_their_bodies(store: Store) -> None:
    await run(store, {"a": {"n": 1}, "b": {"n": 1}})
    await run(store, {"b": {"n": 1}})
    await run(store, {"a": {"n": 2}, "b": {"n": 3}})
    async with store.connection() as conn:
        story = await history(conn, TOYS, "a")
        changed = await history(conn, TOYS, "b")
    assert [(c.kind, c.body, c.before) for c in story] == [
        ("removed", None, {"n": 1}),
        ("added", {"n": 2}, None),
    ]
    assert changed[0].fields == ["n"]


async def test_retention_moves_the_floor_and_410_follows_it(store: Store) -> None:
    await run(store, {"a": {"n": 0}})
    for n in range(1, 4):
        await run(store, {"a": {"n": n}})
    old = Cursor("toys", (await head_of(store))["epoch"], 1)
    async with store.connection() as conn:
        for table in ("feed.change", "feed.version_dataset", "feed.version", "feed.head"):
            column = "changed_at" if table == "feed.change" else "committed_at"
            await conn.execute(f"UPDATE {table} SET {column} = {column} - interval '40 days'")
        await conn.execute("UPDATE feed.head SET floor_at = floor_at - interval '40 days'")
    await run(store, {"a": {"n": 9}}, retention_days=30)
    head = await head_of(store)
    assert (head["floor"], head["seq"]) == (3, 4)
    async with store.connection() as conn:
        with pytest.raises(GoneError, match="have expired"):
            await changes_after(conn, "toys", old, limit=10)
        with pytest.raises(GoneError, match="have expired"):
            await changes_between(conn, "toys", LONG_AGO, None, page=1, size=10)
        page = await changes_after(conn, "toys", None, limit=10)
    assert [change.seq for change in page.changes] == [4]
    # Lengthened retention cannot bring back what is gone, and does not pretend to.
    await run(store, {"a": {"n": 10}}, retention_days=365)
    assert (await head_of(store))["floor"] == 3
    recently_gone = datetime.now(UTC) - timedelta(days=35)
    async with store.connection() as conn:
        with pytest.raises(GoneError):
            await changes_between(conn, "toys", recently_gone, None, page=1, size=10)


async def test_cursors_that_cannot_be_right_are_gone(store: Store) -> None:
    await run(store, {"a": {"n": 1}})
    epoch = (await head_of(store))["epoch"]
    for wrong in (Cursor("toys", epoch, 5), Cursor("toys", uuid4(), 0), Cursor("dolls", epoch, 0)):
        async with store.connection() as conn:
            with pytest.raises(GoneError) as caught:
                await changes_after(conn, "toys", wrong, limit=10)
        assert "/api/v1/toys/archives/latest" in (caught.value.remedy or "")


async def test_what_was_never_filled_says_so(store: Store) -> None:
    async with store.connection() as conn:
        with pytest.raises(UnavailableError, match="has no data yet"):
            await changes_after(conn, "toys", None, limit=10)
        await conn.execute("INSERT INTO feed.head (dataset, source) VALUES ('toys', 'x')")
        with pytest.raises(UnavailableError, match="has no data yet"):
            await changes_after(conn, "toys", None, limit=10)


async def test_the_same_key_twice_in_one_run_is_refused(store: Store) -> None:
    with pytest.raises(HasatError, match="repeated key"):
        async with Reconcile.begin(store, [TOYS]) as work:
            await work.stage(TOYS, [Record("a", b"{}"), Record("a", b"{}")])


async def test_a_watch_list_passes_over_what_others_change(store: Store) -> None:
    await run(store, {"mine": {"n": 0}, **{f"other {i}": {"n": 0} for i in range(20)}})
    await run(store, {"mine": {"n": 1}, **{f"other {i}": {"n": 1} for i in range(20)}})
    async with store.connection() as conn:
        page = await changes_after(conn, "toys", None, limit=5, keys=["mine"])
    assert [change.key for change in page.changes] == ["mine"]
    assert page.up_to_date


async def test_two_datasets_of_a_source_commit_together(store: Store) -> None:
    dolls = Dataset("dolls", "toy_shop", "dolls, for tests")
    await make_table(store, dolls)
    async with Reconcile.begin(store, [TOYS, dolls]) as work:
        for dataset in (TOYS, dolls):
            await work.stage(dataset, [Record("a", canonical({"n": 1}))])
            await work.diff(dataset)
        version = await work.write(run=7, retention_days=30)
    assert version.heads == {"toys": 0, "dolls": 0}
    assert await mirror(store, dolls) == await mirror(store) == {"a": {"n": 1}}


async def test_a_record_as_of_a_time_is_what_the_feed_had_then(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    states: list[tuple[datetime, State]] = []
    truth: State = {f"toy {n}": {"n": 0} for n in range(4)}
    for step in range(1, 9):
        version = await run(store, truth)
        states.append((version.committed_at, dict(truth)))
        truth = {key: body for key, body in truth.items() if dice.random() < 0.8}
        truth |= {f"toy {dice.randrange(6)}": {"n": step} for _ in range(2)}
    async with store.connection() as conn:
        for at, state in states:
            for moment in (at, at + timedelta(microseconds=1)):
                for key in (f"toy {n}" for n in range(7)):
                    found = await record_as_of(conn, TOYS, key, moment)
                    assert found.body == state.get(key), (key, moment)
        with pytest.raises(UsageError):
            await record_as_of(conn, TOYS, "toy 0", states[-1][0] + timedelta(days=9))
        with pytest.raises(ExpiredError):
            await record_as_of(conn, TOYS, "toy 0", states[0][0] - timedelta(microseconds=1))
