"""The replica against a real server over a real socket, in good and in bad weather."""

import asyncio
import json
import random
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from anyio.from_thread import BlockingPortal

from hasat.errors import ConflictError, NotAllowedError, NotFoundError, UsageError
from hasat.feed.encoding import canonical
from hasat.replica import Backoff, DifferentError, Replica, StartOverError, open_target
from hasat.replica.failures import TroubleError
from hasat.settings import Settings
from hasat.store import Store
from hasat.testing.database import throw_away_database
from support.feed_toys import State, state_digest
from support.replica_shop import Shop, open_shop

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop(store: Store, settings: Settings) -> AsyncIterator[Shop]:
    async with open_shop(store, settings) as shop:
        yield shop


@pytest.fixture(params=["sqlite", "postgresql"])
def target(
    request: pytest.FixtureRequest, background: BlockingPortal, server_url: str, tmp_path: Path
) -> Iterator[str]:
    """A database of the user's own, of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'toys.db'}"
        return
    with background.wrap_async_context_manager(throw_away_database(server_url, None)) as database:
        yield database.url


# What the target has no part in need not be tried on both types.
on_one_target = pytest.mark.parametrize("target", ["sqlite"], indirect=True)


class Bench:
    """Makes replicas that do not sleep but write down how long they would have."""

    def __init__(self, shop: Shop, target: str) -> None:
        self.shop = shop
        self.target = target
        self.pauses: list[float] = []
        self.reports: list[str] = []

    def __call__(self, **options: Any) -> Replica:
        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(0)

        defaults: dict[str, Any] = {"sleep": sleep, "report": self.reports.append}
        return Replica("toys", self.shop.address, self.target, **{**defaults, **options})

    def rows(self) -> dict[str, tuple[Any, int]]:
        """Return what a user's own query finds, by key: body and seq."""
        query = "SELECT key, body, seq FROM {}toys"
        if self.target.startswith("sqlite"):
            with closing(sqlite3.connect(self.target.removeprefix("sqlite:///"))) as file:
                rows = file.execute(query.format("")).fetchall()
            return {key: (json.loads(body), seq) for key, body, seq in rows}
        with psycopg.connect(self.target) as conn:
            found = conn.execute(query.format("replica.")).fetchall()
        return {key: (body, seq) for key, body, seq in found}

    def execute(self, query: str) -> None:
        """A user's own statement; `toys` is the replica's table."""
        if self.target.startswith("sqlite"):
            with closing(sqlite3.connect(self.target.removeprefix("sqlite:///"))) as file, file:
                file.execute(query)
        else:
            with psycopg.connect(self.target) as conn:
                conn.execute("SET search_path = replica")
                conn.execute(query)

    def holds(self, truth: State) -> bool:
        assert {key: body for key, (body, _) in self.rows().items()} == truth
        return True


@pytest.fixture
def bench(shop: Shop, target: str) -> Bench:
    return Bench(shop, target)


def toys(number: int) -> State:
    return {f"toy {n}": {"n": n, "name": "ÇİĞ", "price": 1.5} for n in range(number)}


async def test_it_follows_any_history_and_knows_that_it_is_equal(shop: Shop, bench: Bench) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth: State = toys(30)
    await shop.sell(truth)
    for step in range(6):
        async with bench() as replica:
            report = await replica.catch_up()
            await replica.verify()
            assert report.loaded == (step == 0)
            assert bench.holds(truth)
            state = replica.state
        assert (state.records, state.digest) == (len(truth), state_digest(truth).hex())
        for _ in range(dice.randrange(1, 4)):
            for _ in range(dice.randrange(12)):
                truth[f"toy {dice.randrange(50)}"] = {"n": dice.choice([1, 1.0, None, [], "x"])}
            truth.pop(f"toy {dice.randrange(50)}", None)
            await shop.sell(truth, archive=False)
    assert not bench.pauses


@on_one_target
async def test_nothing_new_is_reported_as_such(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(3))
    async with bench() as replica:
        assert (await replica.catch_up()).new
        assert not (await replica.catch_up()).new
    async with bench() as replica:
        assert not (await replica.catch_up()).new


async def test_a_follower_hears_of_a_commit_and_goes_on(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(3))
    async with bench() as replica:
        await replica.catch_up()
        reports = replica.follow()
        for number in (4, 5, 2):
            hearing = asyncio.ensure_future(anext(reports))
            await asyncio.sleep(0)
            await shop.sell(toys(number), archive=False)
            assert (await hearing).records == number
        assert await replica.get("toy 1") == toys(2)["toy 1"]
        assert await replica.get("toy 4") is None


async def test_many_pages_and_a_record_that_goes_and_comes_back(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(2))
    async with bench() as replica:
        await replica.catch_up()
        await shop.sell({"toy 0": {"n": 0}}, archive=False)
        await shop.sell(toys(2500), archive=False)
        await shop.sell(toys(2), archive=False)
        await shop.sell({**toys(2), "toy 7": {"again": True}}, archive=False)
        report = await replica.catch_up()
        assert report.changes == report.seq > 3 * 1000
        assert bench.holds(shop.truth)
        await replica.verify()


@on_one_target
async def test_an_expired_place_in_the_feed_means_starting_over(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(10))
    async with bench() as replica:
        await replica.catch_up()
    await shop.time_passes()
    await shop.sell(toys(12), retention_days=1)
    await shop.time_passes()
    await shop.sell(toys(11), retention_days=1)
    async with bench() as replica:
        report = await replica.catch_up()
        assert report.loaded
        assert bench.holds(toys(11))
    assert any("have expired" in sentence for sentence in bench.reports)
    assert bench.pauses == [0.0]


async def test_a_restored_server_is_loaded_anew_and_only_differences_are_written(
    shop: Shop, bench: Bench
) -> None:
    await shop.sell(toys(10))
    async with bench() as replica:
        await replica.catch_up()
        await shop.sell({**toys(10), "toy 3": {"n": "new"}}, archive=False)
        await replica.catch_up()
        bench.execute("CREATE INDEX mine ON toys (changed_at)")
        bench.execute("CREATE VIEW dear AS SELECT key FROM toys WHERE seq > 0")
        await shop.restore()
        await shop.sell({**toys(9), "toy 3": {"n": "other"}})
        assert (await replica.catch_up()).loaded
        await replica.verify()
    assert bench.holds(shop.truth)
    seqs = {key: seq for key, (_, seq) in bench.rows().items()}
    assert seqs.pop("toy 3") > 0
    assert set(seqs.values()) == {0}
    # What users built on the table is still there.
    bench.execute("DROP INDEX mine")
    bench.execute("DROP VIEW dear")


@on_one_target
async def test_an_archive_that_is_expired_itself_is_waited_for_without_a_hot_loop(
    shop: Shop, bench: Bench
) -> None:
    await shop.sell(toys(10))
    async with bench(patience=300) as replica:
        await replica.catch_up()
        old = bench.rows()
        shop.weather.refuse("/changes", 410, times=10_000)
        with pytest.raises(StartOverError):
            await replica.catch_up()
    assert 240 < sum(bench.pauses) <= 300
    assert len(bench.pauses) < 20
    assert max(bench.pauses) <= 60
    assert bench.pauses[5] > bench.pauses[1]
    assert bench.rows() == old
    # It requested the state before it loaded: no archive was written needlessly.
    assert sum("Loaded" in sentence for sentence in bench.reports) == 1


@on_one_target
@pytest.mark.parametrize("ending", ["/changes", "/archives/latest"])
async def test_a_server_in_trouble_is_asked_again_later(
    shop: Shop, bench: Bench, ending: str
) -> None:
    await shop.sell(toys(10))
    shop.weather.refuse(ending, 503, times=3)
    shop.weather.refuse(ending, 429, headers={"Retry-After": "47"})
    shop.weather.change(ending, lambda body: b"<html>".ljust(len(body))[: len(body)])
    async with bench() as replica:
        await replica.catch_up()
    assert bench.holds(toys(10))
    assert len(bench.pauses) >= 5
    assert 47 in bench.pauses
    assert any("Trying again in 47 s" in sentence for sentence in bench.reports)


@on_one_target
async def test_a_server_that_stays_away_is_an_error_in_the_end(bench: Bench) -> None:
    bench.shop.address = "http://127.0.0.1:1"
    async with bench() as replica:
        with pytest.raises(TroubleError) as caught:
            await replica.catch_up()
    assert "127.0.0.1:1" in caught.value.message
    assert 60 < sum(bench.pauses) <= 120


@on_one_target
async def test_no_archive_yet_is_waited_for(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(4), archive=False)

    async def sleep(seconds: float) -> None:
        await shop.archive()

    async with bench(sleep=sleep) as replica:
        await replica.catch_up()
    assert bench.holds(toys(4))
    assert any("no archive" in sentence for sentence in bench.reports)


def _lose_one_of_the_last(body: bytes) -> bytes:
    """A page that lacks a change, in as many bytes."""
    page: dict[str, Any] = json.loads(body) if body else {}
    if not page.get("upToDate"):
        return body
    del page["changes"][1]
    return canonical(page).ljust(len(body))


@on_one_target
async def test_a_gap_is_noticed_said_and_healed(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(3))

    async with bench() as replica:
        await replica.catch_up()
        await shop.sell(toys(9))
        shop.weather.change("/changes", _lose_one_of_the_last)
        report = await replica.catch_up()
        assert report.loaded
    assert bench.holds(toys(9))
    assert any("gap after change 0" in sentence for sentence in bench.reports)


@on_one_target
async def test_a_gap_that_is_there_again_after_every_load_is_no_hot_loop(
    shop: Shop, bench: Bench
) -> None:
    await shop.sell(toys(1))
    await shop.sell(toys(1500), archive=False)

    for _ in range(200):
        shop.weather.change("/changes", _lose_one_of_the_last)
    async with bench(patience=30) as replica:
        with pytest.raises(StartOverError):
            await replica.catch_up()
    assert 4 < len(shop.received("/archives/latest")) < 9


@on_one_target
async def test_a_cut_archive_is_gone_on_with_where_it_was_cut(shop: Shop, bench: Bench) -> None:
    dice = random.Random(1)
    await shop.sell({f"toy {n}": {"noise": dice.randbytes(200).hex()} for n in range(2000)})
    for _ in range(4):
        shop.weather.cut("/archives/latest", 60_000)
    async with bench() as replica:
        await replica.catch_up()
    assert bench.holds(shop.truth)
    ranges = [one.headers.get("range") for one in shop.received("/archives/latest")]
    assert ranges[0] is None
    starts = [int(re.fullmatch(r"bytes=(\d+)-", one or "")[1]) for one in ranges[1:]]  # type: ignore[index]
    assert len(starts) == 4
    assert starts == sorted(starts)
    assert starts[0] > 0
    assert sum("Loading" in sentence for sentence in bench.reports) == 1


@on_one_target
async def test_an_archive_replaced_while_it_is_loaded_is_begun_anew(
    shop: Shop, bench: Bench
) -> None:
    dice = random.Random(1)
    await shop.sell({f"toy {n}": {"noise": dice.randbytes(200).hex()} for n in range(500)})
    shop.weather.cut("/archives/latest", 60_000)

    async def sleep(seconds: float) -> None:
        if len(shop.truth) == 500:
            await shop.sell({**shop.truth, "one": {"more": 1}})

    async with bench(sleep=sleep) as replica:
        await replica.catch_up()
        await replica.verify()
    assert bench.holds(shop.truth)
    assert len(bench.rows()) == 501
    assert any("was replaced" in sentence for sentence in bench.reports)


@on_one_target
@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-9] + bytes([body[-9] ^ 1]) + body[-8:] if body else body,
        lambda body: bytes(len(body)),
    ],
    ids=["one bit", "zeros"],
)
async def test_a_damaged_archive_is_not_used(
    shop: Shop, bench: Bench, damage: Callable[[bytes], bytes]
) -> None:
    await shop.sell(toys(10))
    async with bench() as replica:
        await replica.catch_up()
    await shop.restore()
    await shop.sell(toys(20))
    shop.weather.change("/archives/latest", damage)
    seen: list[int] = []

    async def sleep(seconds: float) -> None:
        seen.append(len(bench.rows()))

    async with bench(sleep=sleep) as replica:
        await replica.catch_up()
    # The records of before were there all the time, and then the new ones.
    assert set(seen) == {10}
    assert any("was not used" in sentence for sentence in bench.reports)
    assert bench.holds(toys(20))


async def test_readers_see_all_of_a_load_or_nothing(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(100))
    async with bench() as replica:
        await replica.catch_up()
    await shop.restore()
    await shop.sell({key: {"n": "new"} for key in toys(300)})
    seen: set[int] = set()

    async def read() -> None:
        while True:
            rows = await asyncio.to_thread(bench.rows)
            new = sum(body == {"n": "new"} for body, _ in rows.values())
            assert (len(rows), new) in {(100, 0), (300, 300)}
            seen.add(new)
            if new:
                return

    reading = asyncio.create_task(read())
    while not seen:  # noqa: ASYNC110 - the reader is a thread
        await asyncio.sleep(0.01)
    async with bench() as replica:
        await replica.catch_up()
        await reading
    assert seen == {0, 300}


async def test_a_row_that_somebody_changed_is_found_and_healed(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(10))
    async with bench() as replica:
        await replica.catch_up()
        await replica.verify()
        bench.execute("""UPDATE toys SET body = '{"n":99}' WHERE key = 'toy 3'""")
        with pytest.raises(DifferentError) as caught:
            await replica.verify()
    assert "differs from the server at change 0" in caught.value.message
    # Readers keep what there is; the next start puts it right.
    assert len(bench.rows()) == 10
    async with bench() as replica:
        assert (await replica.catch_up()).loaded
        await replica.verify()
    assert bench.holds(toys(10))


@on_one_target
async def test_verifying_follows_a_server_that_moved_on(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(5))
    async with bench() as replica:
        await replica.catch_up()
        await shop.sell(toys(8), archive=False)
        await replica.verify()
        assert replica.state.seq == 3
        assert replica.state.verified_at is not None


async def test_a_second_replica_on_the_same_target_leaves(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(5))
    async with bench() as first:
        with pytest.raises(ConflictError) as caught:
            async with bench():
                pass
        assert "Another replica of toys is at work" in caught.value.message
        await first.catch_up()
    async with bench() as third:
        await third.verify()


async def test_without_any_lock_the_slower_of_two_stops_and_nothing_is_spoiled(
    shop: Shop, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("sqlite.SqliteTarget", "postgres.PostgresTarget"):
        monkeypatch.setattr(f"hasat.replica.{kind}._lock", lambda self: None)
    await shop.sell(toys(5))
    async with bench() as first, bench() as second:
        await first.catch_up()
        with pytest.raises(ConflictError):
            await second.catch_up()
        await shop.sell(toys(9), archive=False)
        await first.catch_up()
        await first.verify()


async def test_a_table_of_somebody_elses_is_left_alone(shop: Shop, bench: Bench) -> None:
    if bench.target.startswith("postgresql"):
        with psycopg.connect(bench.target) as conn:
            conn.execute("CREATE SCHEMA replica")
    bench.execute("CREATE TABLE toys (mine int)")
    with pytest.raises(UsageError) as caught:
        async with bench():
            pass
    assert "no replica" in caught.value.message


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
async def test_a_target_that_breaks_in_between_is_taken_up_again(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(5))
    async with bench() as replica:
        await replica.catch_up()
        await shop.sell(toys(50), archive=False)
        with psycopg.connect(bench.target) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await replica.catch_up()
        await replica.verify()
    assert bench.holds(toys(50))
    assert bench.pauses


async def test_two_datasets_share_one_target(shop: Shop, bench: Bench) -> None:
    await shop.sell(toys(5))
    await asyncio.to_thread(_claim_and_leave, bench.target, "others")
    async with bench() as replica:
        await replica.catch_up()
        await asyncio.to_thread(_claim_and_leave, bench.target, "more")
        await replica.verify()


@on_one_target
async def test_who_may_not_come_in_stops_at_once(shop: Shop, bench: Bench) -> None:
    async with bench(key="not-a-key") as replica:
        with pytest.raises(NotAllowedError) as caught:
            await replica.catch_up()
    assert "HASAT_REPLICA_KEY" in str(caught.value)
    assert "not-a-key" not in str(caught.value) + "".join(bench.reports)
    assert not bench.pauses


@on_one_target
async def test_a_dataset_that_does_not_exist_is_said(shop: Shop, target: str) -> None:
    await shop.sell(toys(1))
    async with Replica("nothing", shop.address, target) as replica:
        with pytest.raises(NotFoundError) as caught:
            await replica.catch_up()
    assert "no dataset nothing" in caught.value.message


@pytest.mark.parametrize("wrong", ["mysql://x", "sqlite://", "toys.db", "sqlite:///"])
def test_other_targets_are_refused_in_a_sentence(wrong: str) -> None:
    with pytest.raises(UsageError):
        open_target(wrong, "toys")


@pytest.mark.parametrize("wrong", ["127.0.0.1", "ftp://x", "http://", "//x"])
def test_other_sources_are_refused_in_a_sentence(wrong: str) -> None:
    with pytest.raises(UsageError):
        Replica("toys", wrong, "sqlite:///toys.db")


@pytest.mark.parametrize("wrong", ["../x", "", "Toys", "hasat_replica", 'a"b'])
def test_other_names_are_refused_in_a_sentence(wrong: str) -> None:
    with pytest.raises(UsageError):
        open_target("sqlite:///toys.db", wrong)


def test_pauses_double_up_to_a_limit_and_differ() -> None:
    pace = Backoff(first=1, longest=60)
    longest = [max(pace.pause(failures) for _ in range(200)) for failures in range(1, 9)]
    for value, most in zip(longest, [1, 2, 4, 8, 16, 32, 60, 60], strict=True):
        assert most / 2 <= value <= most
    assert pace.pause(10**9) <= 60
    assert len({pace.pause(5) for _ in range(20)}) > 1


def _claim_and_leave(target: str, dataset: str) -> None:
    with closing(open_target(target, dataset)) as other:
        other.claim()
