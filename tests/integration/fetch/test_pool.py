"""Questions over a pool of endpoints: who is asked, who rests, and what everybody remembers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry

from hasat.budget import Budget, EndpointLimit, Upstream
from hasat.errors import OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch import Outcome, Request, max_attempts, read_endpoints
from hasat.fetch.endpoint_store import EndpointMetrics
from hasat.store import Store
from support.faulty import Asked, Reply
from support.fetch_toys import ASKER, FEATURE, LIMIT, POINT, field_over, found, racing, saying

pytestmark = pytest.mark.anyio


async def set_clock_back(store: Store, column: str, by: timedelta = timedelta(hours=1)) -> None:
    """As if the time of a rest had passed."""
    table = "upstream" if column.startswith("upstream.") else "endpoint"
    name = column.removeprefix("upstream.")
    async with store.connection() as conn:
        await conn.execute(f"UPDATE fetching.{table} SET {name} = {name} - %s", [by])


async def seconds_of_rest(store: Store) -> list[float | None]:
    async with store.connection() as conn:
        rows = await (
            await conn.execute(
                "SELECT extract(epoch FROM rest_until - clock_timestamp())::float8"
                " FROM fetching.endpoint ORDER BY url"
            )
        ).fetchall()
    return [row[0] for row in rows]


async def test_the_most_tries_follow_the_table() -> None:
    assert [max_attempts(n) for n in range(1, 8)] == [1, 1, 2, 2, 3, 3, 3]


async def test_equals_are_asked_in_turn(store: Store) -> None:
    async def found_in_a_moment(asked: Asked, reply: Reply) -> None:
        # Long beside what a busy machine adds: who is slower than the others is asked less.
        await asyncio.sleep(0.05)
        await found(asked, reply)

    async with racing(store, [found_in_a_moment] * 4) as field:
        for _ in range(40):
            assert await field.ask() == FEATURE
    assert sum(field.asked()) == 40
    assert min(field.asked()) >= 5
    assert set(field.ledger.outcomes) == {"ok"}
    assert {line.run for line in field.ledger.lines} == {7}


async def test_a_run_leaves_its_slot_while_no_endpoint_may_be_asked(store: Store) -> None:
    waits: list[float] = []

    @asynccontextmanager
    async def waiting(seconds: float) -> AsyncIterator[None]:
        waits.append(seconds)
        yield

    async with racing(store, [found], min_interval=1.5, waiting=waiting) as field:
        await field.ask()
        await field.ask()
    assert 1.0 < max(waits) <= 1.5


async def test_not_found_is_an_answer_and_ends_the_race(store: Store) -> None:
    message = {"Message": "Parsel Bulunamadı: Enlem = 41,0369 - Boylam=28,9855"}
    async with racing(store, [saying(404, message)] * 5) as field:
        fetched = await field.racer.fetch(POINT, ASKER)
    assert fetched.verdict.outcome is Outcome.EMPTY
    assert sum(field.asked()) == 1
    (report,) = [r for r in await read_endpoints(store, "tkgm") if r.successes]
    assert (report.failures, report.rest_until) == (0, None)


async def test_a_403_fails_over_at_once_and_rests_five_minutes(store: Store) -> None:
    async with racing(store, [saying(403), found, found, found, found]) as field:
        for _ in range(30):
            assert await field.ask() == FEATURE
    assert field.asked()[0] == 1
    reports = {r.url: r for r in await read_endpoints(store, "tkgm")}
    bad = reports[field.servers[0].url]
    assert (bad.successes, bad.failures) == (0, 1)
    assert bad.rest_cause == "it refuses without a reason"
    rests = [seconds for seconds in await seconds_of_rest(store) if seconds]
    assert len(rests) == 1
    assert 200 < rests[0] <= 300


async def test_an_unexplained_403_rests_longer_each_time(store: Store) -> None:
    async with racing(store, [saying(403), found, found]) as field:
        rests: list[float] = []
        for _ in range(3):
            async with store.connection() as conn:
                # All that is known of the good ones is forgotten, so that the bad one has a turn.
                await conn.execute("DELETE FROM fetching.latency")
            while field.asked()[0] == len(rests):
                field.pool._looked_at.clear()
                await field.ask()
            await field.pool.written()
            rests.append(max(s for s in await seconds_of_rest(store) if s))
            await set_clock_back(store, "rest_until")
    assert rests[0] <= 300 < 500 < rests[1] <= 600 < 1100 < rests[2] <= 1200


async def test_a_daily_limit_rests_until_the_next_day_and_is_remembered(store: Store) -> None:
    answers = iter([True] * 3)

    async def three_a_day(_: Asked, reply: Reply) -> None:
        if next(answers, False):
            await reply.json(200, FEATURE)
        else:
            await reply.json(403, LIMIT)

    async with racing(store, [three_a_day]) as field:
        for _ in range(3):
            await field.ask()
        with pytest.raises(UnavailableError):
            await field.ask()
        with pytest.raises(OutOfQuotaError, match="has spent its day") as caught:
            await field.ask()
        assert caught.value.until is not None
        assert len(field.servers[0].asked) == 4
    (report,) = await read_endpoints(store, "tkgm")
    assert report.rest_until is not None
    assert report.learned in (3, None)  # None in the first minutes of a day


async def test_the_days_points_are_never_passed_by_any_number_of_processes(store: Store) -> None:
    batch = Request("/batch", timeout=20.0, kind="batch", method="POST", points=20, hedge=False)
    async with (
        racing(store, [saying(200, {"results": []})] * 2, daily=50) as field,
        field_over(store, field.servers, daily=50) as other,
    ):
        told = await asyncio.gather(
            *(one.ask(batch) for one in [field, other] * 6), return_exceptions=True
        )
    assert sum(isinstance(answer, dict) for answer in told) == 4
    assert {type(answer) for answer in told} == {dict, OutOfQuotaError}
    assert field.asked() == [2, 2]
    assert {report.points for report in await read_endpoints(store, "tkgm")} == {40}


async def test_one_request_at_a_time_and_apart_also_between_processes(store: Store) -> None:
    arrived: list[float] = []

    async def slow(_: Asked, reply: Reply) -> None:
        arrived.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.02)
        await reply.json(200, FEATURE)

    async with (
        racing(store, [slow], min_interval=0.1) as field,
        field_over(store, field.servers, min_interval=0.1) as other,
    ):
        await asyncio.gather(*(one.ask() for one in [field, other] * 4))
    assert field.servers[0].most_at_once == 1
    gaps = [later - earlier for earlier, later in pairwise(arrived)]
    # Sent that far apart; on the way the later one may catch up a little.
    assert sum(gaps) / len(gaps) >= 0.09


async def test_a_refused_key_stops_every_process_with_a_sentence(store: Store) -> None:
    async with racing(store, [saying(401)] * 6) as field:
        with pytest.raises(SettingsError, match="refuses the key"):
            await field.ask()
        async with field_over(store, field.servers) as other:
            with pytest.raises(SettingsError, match="refuses the key"):
                await other.ask()
        assert sum(field.asked()) == 1
        # Another key is tried at once.
        async with field_over(store, field.servers, key="another") as other:
            with pytest.raises(SettingsError):
                await other.ask()
        assert sum(field.asked()) == 2
    async with store.connection() as conn:
        told = await (await conn.execute("SELECT refused_key FROM fetching.upstream")).fetchall()
    assert "another" not in str(told)


async def test_a_corrected_key_opens_everything_again(store: Store) -> None:
    async def locked(asked: Asked, reply: Reply) -> None:
        good = asked.headers["x-api-key"] == "right"
        await reply.json(200 if good else 401, FEATURE)

    async with racing(store, [locked] * 3, key="wrong") as field:
        with pytest.raises(SettingsError):
            await field.ask()
        async with field_over(store, field.servers, key="right") as other:
            for _ in range(4):
                assert await other.ask() == FEATURE


async def test_429_honours_retry_after(store: Store) -> None:
    async with racing(store, [saying(429, None, retry_after="47"), found, found]) as field:
        for _ in range(10):
            assert await field.ask() == FEATURE
    assert field.asked()[0] == 1
    (rest,) = [s for s in await seconds_of_rest(store) if s]
    assert 20 < rest <= 47


async def test_no_endpoint_is_asked_twice_and_no_more_than_the_table_allows(store: Store) -> None:
    async with racing(store, [saying(502)] * 6) as field:
        with pytest.raises(UnavailableError, match="3 asked"):
            await field.ask()
    assert sorted(field.asked()) == [0, 0, 0, 1, 1, 1]
    async with racing(store, [saying(502)] * 2) as field:
        with pytest.raises(UnavailableError, match="1 asked"):
            await field.ask()
    assert sorted(field.asked()) == [0, 1]


async def test_all_failing_alike_rests_the_upstream_and_not_the_endpoints(store: Store) -> None:
    up = False

    async def handler(_: Asked, reply: Reply) -> None:
        await (reply.json(200, FEATURE) if up else reply.send(403))

    async with racing(store, [handler] * 5) as field:
        for _ in range(20):
            with pytest.raises(UnavailableError):
                await field.ask()
        asked = sum(field.asked())
        assert 5 <= asked <= 10
        with pytest.raises(UnavailableError, match="fails alike"):
            await field.ask()
        assert [s for s in await seconds_of_rest(store) if s] == []
        # When the rest is over, exactly one asks whether it is back.
        await set_clock_back(store, "upstream.rest_until")
        field.pool._looked_at.clear()
        told = await asyncio.gather(*(field.ask() for _ in range(5)), return_exceptions=True)
        assert {type(answer) for answer in told} == {UnavailableError}
        assert sum(field.asked()) == asked + 1
        up = True
        await set_clock_back(store, "upstream.rest_until")
        field.pool._looked_at.clear()
        assert await asyncio.gather(*(field.ask() for _ in range(5))) == [FEATURE] * 5


async def test_an_answer_that_cannot_be_read_is_kept(store: Store) -> None:
    async def page(_: Asked, reply: Reply) -> None:
        await reply.send(200, b"<html>busy</html>", {"content-type": "text/html"})

    async with racing(store, [page]) as field:
        fetched = await field.racer.fetch(POINT, ASKER)
    assert fetched.verdict.outcome is Outcome.BROKEN
    async with store.connection() as conn:
        rows = await (
            await conn.execute("SELECT source, run, origin, content FROM raw.set_aside")
        ).fetchall()
    assert rows == [("tkgm", 7, f"{field.servers[0].url}{POINT.path}", b"<html>busy</html>")]


async def test_numbers_are_asked_only_where_they_are_answered(store: Store) -> None:
    numbers = {"mahalleId": "1162", "adaNo": "0", "parselNo": "15/a"}
    question = Request("", timeout=20.0, kind="number", by_number=numbers)
    path = "/parsel/{mahalleId}/{adaNo}/{parselNo}"
    async with racing(store, [found], by_number=path) as field:
        await field.ask(question)
        assert field.servers[0].asked[0].path == "/parsel/1162/0/15%2Fa"
    async with racing(store, [found]) as field:
        with pytest.raises(SettingsError, match="by number"):
            await field.ask(question)


async def test_what_is_spent_is_in_the_ledger_with_its_cost(store: Store) -> None:
    batch = Request("/batch", timeout=20.0, kind="batch", method="POST", points=20, hedge=False)
    async with racing(store, [saying(200, {"results": []})]) as field:
        await field.ask(batch)
    (line,) = field.ledger.lines
    assert (line.cost, line.endpoint, line.outcome) == (20, field.servers[0].url, "ok")
    assert line.latency is not None


async def test_prometheus_reads_every_endpoint(store: Store) -> None:
    async with racing(store, [found, saying(403), found]) as field:
        for _ in range(6):
            await field.ask()
    reports = await read_endpoints(store, "tkgm")
    registry = CollectorRegistry()
    registry.register(EndpointMetrics(reports))
    refusing = {"upstream": "tkgm", "endpoint": field.servers[1].url}
    answering = {"upstream": "tkgm", "endpoint": field.servers[0].url}

    def value(name: str, labels: dict[str, str]) -> float:
        return registry.get_sample_value(f"hasat_endpoint_{name}", labels) or 0.0

    assert value("failures_total", refusing) == 1
    assert value("resting", refusing) == 1
    assert value("points", refusing) == 1
    assert value("successes_total", answering) >= 1
    assert value("resting", answering) == 0
    assert value("seconds", answering | {"kind": "single", "quantile": "0.95"}) > 0


async def test_the_budget_has_the_last_word_about_each_endpoint(store: Store) -> None:
    async with racing(store, [found, found]) as field:
        first, second = (server.url for server in field.servers)
        limits = {first: EndpointLimit(day=1), second: EndpointLimit(day=4)}
        async with Budget(store, Upstream("tkgm", endpoints=limits)) as budget:
            field.pool._purse = budget
            for _ in range(5):
                assert await field.ask() == FEATURE
            with pytest.raises(OutOfQuotaError):
                await field.ask()
            await field.pool.written()
    assert field.asked() == [1, 4]
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT outcome, count(*) FROM budget.request GROUP BY 1")
        assert await cursor.fetchall() == [("ok", 5)]


async def test_a_restored_database_gets_its_endpoints_again(store: Store) -> None:
    async with racing(store, [found]) as field:
        await field.ask()
        await field.pool.written()
        async with store.connection() as conn:
            await conn.execute("DELETE FROM fetching.endpoint")
            await conn.execute("DELETE FROM fetching.upstream")
        field.pool._looked_at.clear()
        assert await field.ask() == FEATURE
