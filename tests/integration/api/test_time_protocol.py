"""The original's time protocol: clients that keep its rules literally end equal to the server."""

import random
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from hasat.api.app import create_app
from hasat.feed.archive import write_archives
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.testing.http import app_client
from support.feed_toys import TOYS, State, make_table, run
from support.time_clients import CLIENTS, TimeClient

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

SHOP = Source("toy_shop", "toys", datasets=(TOYS,))
CHANGES = "/api/v1/toys/changes"


@pytest.fixture
async def http(settings: Settings, store: Store) -> AsyncIterator[httpx2.AsyncClient]:
    await make_table(store)
    app = create_app(settings, store, Catalogue.of([], settings), [SHOP])
    async with app_client(app) as client:
        yield client


class Upstream:
    """The truth, which changes at random and is committed between the pages of a poll."""

    def __init__(self, store: Store, http: httpx2.AsyncClient, dice: random.Random) -> None:
        self._store = store
        self._http = http
        self._dice = dice
        self.state: State = {f"toy {n}": {"n": n} for n in range(10)}
        self.commits_left = 0

    async def commit(self, changes: int, *, retention_days: int = 30) -> None:
        for _ in range(changes):
            key = f"toy {self._dice.randrange(300)}"
            if self._dice.random() < 0.3:
                self.state.pop(key, None)
            else:
                self.state[key] = {"n": self._dice.randrange(10**6)}
        await run(self._store, self.state, retention_days=retention_days)

    async def interfere(self) -> None:
        if self.commits_left and self._dice.random() < 0.5:
            self.commits_left -= 1
            await self.commit(self._dice.choice([0, 1, 5, 20]))

    async def bootstrap(self) -> tuple[State, str, int]:
        """Return what an archive of this moment holds, its X-Last-Sync-At and its head."""
        answer = await self._http.get("/api/v1/toys/digest")
        return dict(self.state), answer.headers["X-Last-Sync-At"], answer.json()["head"]


async def _stop_the_clock(store: Store) -> None:
    """Commit times of now on differ by one microsecond each."""
    async with store.connection() as conn:
        for table in ("head", "version_dataset"):
            await conn.execute(f"UPDATE feed.{table} SET committed_at = committed_at + '1 day'")


@pytest.mark.parametrize("clock", ["goes", "stands"])
async def test_literal_clients_end_equal_while_runs_commit_between_pages(
    http: httpx2.AsyncClient, store: Store, settings: Settings, clock: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    upstream = Upstream(store, http, dice)
    await run(store, upstream.state)
    if clock == "stands":
        await _stop_the_clock(store)
    clients = [
        kind(http, upstream.bootstrap, upstream.interfere, dice.choice([2, 3, 5]))
        for kind in CLIENTS
    ]
    expires = dice.randrange(2)
    for turn in range(5):
        for client in clients:
            await upstream.commit(12)
            upstream.commits_left = 2
            await client.poll()
        if turn == expires:
            await upstream.commit(1, retention_days=0)
            await write_archives(store, settings, TOYS)
    upstream.commits_left = 0
    for client in clients:
        for _ in range(2):
            await client.poll()
        head = (await http.get("/api/v1/toys/digest")).json()["head"]
        assert client.seen == set(range(1, head + 1)), type(client).__name__
        assert client.state == upstream.state, type(client).__name__


async def _page(http: httpx2.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await http.get(CHANGES, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _three_versions(http: httpx2.AsyncClient, store: Store) -> list[str]:
    """Commit a filling and three versions of 4, 4 and 2 changes; return the commit times."""
    times = []
    for size in (0, 4, 8, 10):
        await run(store, {f"toy {n}": {"n": n} for n in range(size)})
        times.append((await http.get("/api/v1/toys/digest")).headers["X-Last-Sync-At"])
    return times


async def test_until_covers_only_versions_that_the_pages_so_far_contain(
    http: httpx2.AsyncClient, store: Store
) -> None:
    filled, first, second, third = await _three_versions(http, store)
    pages = [await _page(http, since=filled, page=n, pageSize=3) for n in (1, 2, 3, 4, 5)]
    assert [page["until"] for page in pages] == [filled, first, second, third, third]
    assert {page["windowEnd"] for page in pages} == {third}
    exact = await _page(http, since=filled, page=1, pageSize=4)
    assert exact["until"] == first


async def test_a_commit_between_two_pages_is_not_skipped(
    http: httpx2.AsyncClient, store: Store
) -> None:
    await run(store, {})
    since = (await _page(http, since="2126-01-01T00:00:00"))["until"]
    await run(store, {f"toy {n}": {"n": n} for n in range(10)})
    first = await _page(http, since=since, pageSize=4)
    assert first["totalPages"] == 3
    await run(store, {f"toy {n}": {"n": n} for n in range(40)})
    last = await _page(http, since=since, page=3, pageSize=4)
    assert (last["until"], len(last["changes"])) == (first["windowEnd"], 4)
    assert (await _page(http, since=last["until"]))["totalCount"] == 30
    again = await _page(http, since=since, until=first["windowEnd"], page=3, pageSize=4)
    assert (again["totalPages"], len(again["changes"]), again["until"]) == (
        3,
        2,
        first["windowEnd"],
    )


async def test_retention_between_two_pages_is_a_410(
    http: httpx2.AsyncClient, store: Store, settings: Settings
) -> None:
    filled, *_ = await _three_versions(http, store)
    await _page(http, since=filled, pageSize=3)
    await run(store, {}, retention_days=0)
    await write_archives(store, settings, TOYS)
    answer = await http.get(CHANGES, params={"since": filled, "page": 2, "pageSize": 3})
    assert (answer.status_code, answer.json()["code"]) == (410, "feed-expired")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_watch_list_can_be_read_by_time(
    http: httpx2.AsyncClient, store: Store, method: str
) -> None:
    filled, first, _, third = await _three_versions(http, store)
    watched = ["toy 0", "toy 3", "toy 5", "toy 9", "toy 99"]

    async def page(number: int) -> dict[str, Any]:
        query: dict[str, Any] = {"since": filled, "page": number, "pageSize": 2}
        if method == "GET":
            return await _page(http, **query, only=watched)
        answer = await http.post(CHANGES, params=query, json={"only": watched})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    pages = [await page(number) for number in (1, 2, 3)]
    assert [[change["key"] for change in one["changes"]] for one in pages] == [
        ["toy 0", "toy 3"],
        ["toy 5", "toy 9"],
        [],
    ]
    assert {(one["totalCount"], one["totalPages"]) for one in pages} == {(4, 2)}
    assert [one["until"] for one in pages] == [first, third, third]


async def test_a_client_that_reads_all_pages_always_moves_on(
    http: httpx2.AsyncClient, store: Store
) -> None:
    """Also when a run commits before every page."""
    await run(store, {})
    size = 0

    async def bootstrap() -> tuple[State, str, int]:
        return {}, (await http.get("/api/v1/toys/digest")).headers["X-Last-Sync-At"], 0

    async def grow() -> None:
        nonlocal size
        size = min(size + 2, 40)
        await run(store, {f"toy {n}": {"n": n} for n in range(size)})

    for kind in CLIENTS[:3]:
        client: TimeClient = kind(http, bootstrap, grow, 3)
        places = []
        for _ in range(4):
            await client.poll()
            places.append(client.since)
        assert places == sorted(set(places), key=str)
