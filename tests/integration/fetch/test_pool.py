"""The endpoint pool: the choice of endpoints, cooldowns, and state shared by processes."""

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
from hasat.fetch.endpoint_metrics import EndpointMetrics
from hasat.store import Store
from support.endpoint_pool import (
    CONTEXT,
    FEATURE,
    LIMIT,
    POINT,
    found,
    open_pool,
    pool_over,
    respond_with,
)
from support.faulty_server import ReceivedRequest, Reply

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


async def test_the_maximum_of_attempts_follows_the_table() -> None:
    assert [max_attempts(n) for n in range(1, 8)] == [1, 1, 2, 2, 3, 3, 3]


async def test_equal_endpoints_are_used_in_turn(store: Store) -> None:
    async def found_in_a_moment(request: ReceivedRequest, reply: Reply) -> None:
        # Long compared with the noise of a busy machine: slower endpoints get fewer requests.
        await asyncio.sleep(0.05)
        await found(request, reply)

    async with open_pool(store, [found_in_a_moment] * 4) as pool:
        for _ in range(40):
            assert await pool.fetch() == FEATURE
    assert sum(pool.received()) == 40
    assert min(pool.received()) >= 5
    assert set(pool.budget.outcomes) == {"ok"}
    assert {line.run for line in pool.budget.requests} == {7}


async def test_a_run_vacates_its_slot_while_no_endpoint_is_free(store: Store) -> None:
    waits: list[float] = []

    @asynccontextmanager
    async def waiting(seconds: float) -> AsyncIterator[None]:
        waits.append(seconds)
        yield

    async with open_pool(store, [found], min_interval=1.5, waiting=waiting) as pool:
        await pool.fetch()
        await pool.fetch()
    assert 1.0 < max(waits) <= 1.5


async def test_not_found_is_definitive_and_ends_the_race(store: Store) -> None:
    message = {"Message": "Parsel Bulunamadı: Enlem = 41,0369 - Boylam=28,9855"}
    async with open_pool(store, [respond_with(404, message)] * 5) as pool:
        result = await pool.fetcher.fetch(POINT, CONTEXT)
    assert result.verdict.outcome is Outcome.EMPTY
    assert sum(pool.received()) == 1
    (report,) = [r for r in await read_endpoints(store, "tkgm") if r.successes]
    assert (report.failures, report.rest_until) == (0, None)


async def test_a_403_fails_over_at_once_with_a_cooldown_of_five_minutes(store: Store) -> None:
    async with open_pool(store, [respond_with(403), found, found, found, found]) as pool:
        for _ in range(30):
            assert await pool.fetch() == FEATURE
    assert pool.received()[0] == 1
    reports = {r.url: r for r in await read_endpoints(store, "tkgm")}
    bad = reports[pool.servers[0].url]
    assert (bad.successes, bad.failures) == (0, 1)
    assert bad.rest_cause == "forbidden without a reason"
    rests = [seconds for seconds in await seconds_of_rest(store) if seconds]
    assert len(rests) == 1
    assert 200 < rests[0] <= 300


async def test_the_cooldown_of_an_unexplained_403_grows(store: Store) -> None:
    async with open_pool(store, [respond_with(403), found, found]) as pool:
        rests: list[float] = []
        for _ in range(3):
            async with store.connection() as conn:
                # All that is known of the good ones is forgotten, so that the bad one has a turn.
                await conn.execute("DELETE FROM fetching.latency")
            while pool.received()[0] == len(rests):
                pool.pool._refreshed_at.clear()
                await pool.fetch()
            await pool.pool.written()
            rests.append(max(s for s in await seconds_of_rest(store) if s))
            await set_clock_back(store, "rest_until")
    assert rests[0] <= 300 < 500 < rests[1] <= 600 < 1100 < rests[2] <= 1200


async def test_a_daily_limit_lasts_until_the_next_day_and_is_learned(store: Store) -> None:
    answers = iter([True] * 3)

    async def three_a_day(_: ReceivedRequest, reply: Reply) -> None:
        if next(answers, False):
            await reply.json(200, FEATURE)
        else:
            await reply.json(403, LIMIT)

    async with open_pool(store, [three_a_day]) as pool:
        for _ in range(3):
            await pool.fetch()
        with pytest.raises(UnavailableError):
            await pool.fetch()
        with pytest.raises(OutOfQuotaError, match="daily quota of every endpoint") as caught:
            await pool.fetch()
        assert caught.value.until is not None
        assert len(pool.servers[0].received) == 4
    (report,) = await read_endpoints(store, "tkgm")
    assert report.rest_until is not None
    assert report.learned in (3, None)  # None in the first minutes of a day


async def test_processes_together_never_exceed_the_daily_points(store: Store) -> None:
    batch = Request("/batch", timeout=20.0, kind="batch", method="POST", points=20, hedge=False)
    async with (
        open_pool(store, [respond_with(200, {"results": []})] * 2, daily=50) as pool,
        pool_over(store, pool.servers, daily=50) as other,
    ):
        results = await asyncio.gather(
            *(one.fetch(batch) for one in [pool, other] * 6), return_exceptions=True
        )
    assert sum(isinstance(answer, dict) for answer in results) == 4
    assert {type(answer) for answer in results} == {dict, OutOfQuotaError}
    assert pool.received() == [2, 2]
    assert {report.points for report in await read_endpoints(store, "tkgm")} == {40}


async def test_requests_of_all_processes_are_sequential_and_spaced(store: Store) -> None:
    arrived: list[float] = []

    async def slow(_: ReceivedRequest, reply: Reply) -> None:
        arrived.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.02)
        await reply.json(200, FEATURE)

    async with (
        open_pool(store, [slow], min_interval=0.1) as pool,
        pool_over(store, pool.servers, min_interval=0.1) as other,
    ):
        await asyncio.gather(*(one.fetch() for one in [pool, other] * 4))
    assert pool.servers[0].max_concurrent == 1
    gaps = [later - earlier for earlier, later in pairwise(arrived)]
    # Sent that far apart; on the way the later one may catch up a little.
    assert sum(gaps) / len(gaps) >= 0.09


async def test_a_rejected_key_stops_every_process(store: Store) -> None:
    async with open_pool(store, [respond_with(401)] * 6) as pool:
        with pytest.raises(SettingsError, match="rejects the API key"):
            await pool.fetch()
        async with pool_over(store, pool.servers) as other:
            with pytest.raises(SettingsError, match="rejects the API key"):
                await other.fetch()
        assert sum(pool.received()) == 1
        # Another key is tried at once.
        async with pool_over(store, pool.servers, key="another") as other:
            with pytest.raises(SettingsError):
                await other.fetch()
        assert sum(pool.received()) == 2
    async with store.connection() as conn:
        results = await (await conn.execute("SELECT refused_key FROM fetching.upstream")).fetchall()
    assert "another" not in str(results)


async def test_a_corrected_key_is_used_at_once(store: Store) -> None:
    async def locked(request: ReceivedRequest, reply: Reply) -> None:
        good = request.headers["x-api-key"] == "right"
        await reply.json(200 if good else 401, FEATURE)

    async with open_pool(store, [locked] * 3, key="wrong") as pool:
        with pytest.raises(SettingsError):
            await pool.fetch()
        async with pool_over(store, pool.servers, key="right") as other:
            for _ in range(4):
                assert await other.fetch() == FEATURE


async def test_429_honours_retry_after(store: Store) -> None:
    async with open_pool(store, [respond_with(429, None, retry_after="47"), found, found]) as pool:
        for _ in range(10):
            assert await pool.fetch() == FEATURE
    assert pool.received()[0] == 1
    (rest,) = [s for s in await seconds_of_rest(store) if s]
    assert 20 < rest <= 47


async def test_a_request_goes_to_each_endpoint_once_and_to_no_more_than_allowed(
    store: Store,
) -> None:
    async with open_pool(store, [respond_with(502)] * 6) as pool:
        with pytest.raises(UnavailableError, match="3 tried"):
            await pool.fetch()
    assert sorted(pool.received()) == [0, 0, 0, 1, 1, 1]
    async with open_pool(store, [respond_with(502)] * 2) as pool:
        with pytest.raises(UnavailableError, match="1 tried"):
            await pool.fetch()
    assert sorted(pool.received()) == [0, 1]


async def test_the_same_failure_everywhere_is_a_cooldown_of_the_upstream(store: Store) -> None:
    up = False

    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await (reply.json(200, FEATURE) if up else reply.send(403))

    async with open_pool(store, [handler] * 5) as pool:
        for _ in range(20):
            with pytest.raises(UnavailableError):
                await pool.fetch()
        requests = sum(pool.received())
        assert 5 <= requests <= 10
        with pytest.raises(UnavailableError, match="fails in the same way"):
            await pool.fetch()
        assert [s for s in await seconds_of_rest(store) if s] == []
        # When the rest is over, exactly one asks whether it is back.
        await set_clock_back(store, "upstream.rest_until")
        pool.pool._refreshed_at.clear()
        results = await asyncio.gather(*(pool.fetch() for _ in range(5)), return_exceptions=True)
        assert {type(answer) for answer in results} == {UnavailableError}
        assert sum(pool.received()) == requests + 1
        up = True
        await set_clock_back(store, "upstream.rest_until")
        pool.pool._refreshed_at.clear()
        assert await asyncio.gather(*(pool.fetch() for _ in range(5))) == [FEATURE] * 5


async def test_a_broken_response_is_quarantined(store: Store) -> None:
    async def page(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(200, b"<html>busy</html>", {"content-type": "text/html"})

    async with open_pool(store, [page]) as pool:
        result = await pool.fetcher.fetch(POINT, CONTEXT)
    assert result.verdict.outcome is Outcome.BROKEN
    async with store.connection() as conn:
        rows = await (
            await conn.execute("SELECT source, run, origin, content FROM raw.set_aside")
        ).fetchall()
    assert rows == [("tkgm", 7, f"{pool.servers[0].url}{POINT.path}", b"<html>busy</html>")]


async def test_requests_by_number_go_to_endpoints_that_support_them(store: Store) -> None:
    numbers = {"mahalleId": "1162", "adaNo": "0", "parselNo": "15/a"}
    request = Request("", timeout=20.0, kind="number", by_number=numbers)
    path = "/parsel/{mahalleId}/{adaNo}/{parselNo}"
    async with open_pool(store, [found], by_number=path) as pool:
        await pool.fetch(request)
        assert pool.servers[0].received[0].path == "/parsel/1162/0/15%2Fa"
    async with open_pool(store, [found]) as pool:
        with pytest.raises(SettingsError, match="by number"):
            await pool.fetch(request)


async def test_the_ledger_has_the_cost_of_a_request(store: Store) -> None:
    batch = Request("/batch", timeout=20.0, kind="batch", method="POST", points=20, hedge=False)
    async with open_pool(store, [respond_with(200, {"results": []})]) as pool:
        await pool.fetch(batch)
    (line,) = pool.budget.requests
    assert (line.cost, line.endpoint, line.outcome) == (20, pool.servers[0].url, "ok")
    assert line.latency is not None


async def test_prometheus_metrics_cover_every_endpoint(store: Store) -> None:
    async with open_pool(store, [found, respond_with(403), found]) as pool:
        for _ in range(6):
            await pool.fetch()
    reports = await read_endpoints(store, "tkgm")
    registry = CollectorRegistry()
    registry.register(EndpointMetrics(reports))
    refusing = {"upstream": "tkgm", "endpoint": pool.servers[1].url}
    answering = {"upstream": "tkgm", "endpoint": pool.servers[0].url}

    def value(name: str, labels: dict[str, str]) -> float:
        return registry.get_sample_value(f"hasat_endpoint_{name}", labels) or 0.0

    assert value("failures_total", refusing) == 1
    assert value("resting", refusing) == 1
    assert value("points", refusing) == 1
    assert value("successes_total", answering) >= 1
    assert value("resting", answering) == 0
    assert value("seconds", answering | {"kind": "single", "quantile": "0.95"}) > 0


async def test_the_budget_limits_each_endpoint(store: Store) -> None:
    async with open_pool(store, [found, found]) as pool:
        first, second = (server.url for server in pool.servers)
        limits = {first: EndpointLimit(day=1), second: EndpointLimit(day=4)}
        async with Budget(store, Upstream("tkgm", endpoints=limits)) as budget:
            pool.pool._budget = budget
            for _ in range(5):
                assert await pool.fetch() == FEATURE
            with pytest.raises(OutOfQuotaError):
                await pool.fetch()
            await pool.pool.written()
    assert pool.received() == [1, 4]
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT outcome, count(*) FROM budget.request GROUP BY 1")
        assert await cursor.fetchall() == [("ok", 5)]


async def test_endpoints_are_declared_again_after_a_restore(store: Store) -> None:
    async with open_pool(store, [found]) as pool:
        await pool.fetch()
        await pool.pool.written()
        async with store.connection() as conn:
            await conn.execute("DELETE FROM fetching.endpoint")
            await conn.execute("DELETE FROM fetching.upstream")
        pool.pool._refreshed_at.clear()
        assert await pool.fetch() == FEATURE
