"""Processes that share a budget never exceed the limits, as counted by a metered server."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hasat.budget import Budget, Lane, Upstream, read_quota
from hasat.clock import Clock
from hasat.errors import DatabaseError
from hasat.settings import load_settings
from hasat.store import Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import MeteredUpstream

pytestmark = pytest.mark.anyio

HAMMER = Path(__file__).parents[1] / "support" / "budget_hammer.py"
PROCESSES = 4


class Crew:
    """Hammering processes, and what they said at the end."""

    def __init__(self, database: ThrowAwayDatabase, folder: Path, port: int) -> None:
        self._common = {"url": database.url, "home": str(folder), "port": port}
        self._folder = folder
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self, number: int, **options: Any) -> None:
        ready = str(self._folder / f"ready {number}")
        given = {**self._common, "ready": ready, "at_once": 3, "minute_limit": None, **options}
        self.processes.append(
            await asyncio.create_subprocess_exec(
                sys.executable,
                str(HAMMER),
                json.dumps(given),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **self._environ(options)},
            )
        )

    @staticmethod
    def _environ(options: Mapping[str, Any]) -> dict[str, str]:
        return {"TZ": "Pacific/Kiritimati"} if options.get("skew") else {}

    async def results(self) -> list[int | None]:
        """How many each sent; None for who was killed."""
        sent = []
        for process in self.processes:
            out, _ = await process.communicate()
            sent.append(json.loads(out)["sent"] if process.returncode == 0 else None)
        return sent


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110 - what happens elsewhere sends no event
            await asyncio.sleep(0.01)


@pytest.fixture
async def midday(store: Store) -> Clock:
    """The budget's clock and the server's, at a time when no day ends under a test."""
    shift = datetime(2026, 3, 10, 12, tzinfo=UTC) - datetime.now(UTC)
    async with store.connection() as conn:
        await conn.execute(
            "CREATE OR REPLACE FUNCTION budget.now() RETURNS timestamptz LANGUAGE sql VOLATILE"
            f" AS $$ SELECT clock_timestamp() + interval '{shift.total_seconds()} seconds' $$"
        )
    return lambda: datetime.now(UTC) + shift


async def test_four_processes_spend_the_day_to_the_last_and_not_one_more(
    database: ThrowAwayDatabase, store: Store, midday: Clock, tmp_path: Path
) -> None:
    metered = MeteredUpstream(day_limit=400, minute_limit=1_000_000, clock=midday)
    async with metered.listening() as port:
        crew = Crew(database, tmp_path, port)
        for number in range(PROCESSES):
            # Two of the machines have a clock that is wrong by minutes, and another zone.
            await crew.start(number, day_limit=400, skew=(0, 420, 0, -300)[number])
        sent = await crew.results()
    assert sum(one or 0 for one in sent) == sum(metered.by_day.values()) == 400
    assert metered.over_limit == 0
    quota = await read_quota(store, "metered")
    assert (quota.windows.spent, quota.windows.foreign_use) == (400, 0)
    assert [(o.outcome, o.requests) for o in quota.outcomes] == [("ok", 400)]


async def test_the_minute_holds_for_all_processes_together(
    database: ThrowAwayDatabase, store: Store, midday: Clock, tmp_path: Path
) -> None:
    metered = MeteredUpstream(day_limit=60, minute_limit=700, clock=midday)
    async with metered.listening() as port:
        crew = Crew(database, tmp_path, port)
        for number in range(PROCESSES):
            await crew.start(number, day_limit=60, minute_limit=600)
        await crew.results()
    assert metered.over_limit == 0
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT count(*), extract(epoch FROM max(at) - min(at))::float8 FROM budget.request"
        )
        row = await cursor.fetchone()
    assert row is not None
    count, seconds = row
    assert count == 60
    # Ten a second, and one slot to catch up with: not faster, however many ask.
    assert seconds >= 58 * 60 / 599


async def test_the_grants_of_a_killed_process_are_spent_and_nothing_else_is_lost(
    database: ThrowAwayDatabase, store: Store, midday: Clock, tmp_path: Path
) -> None:
    metered = MeteredUpstream(day_limit=400, minute_limit=1_000_000, latency=0.01, clock=midday)
    async with metered.listening() as port:
        crew = Crew(database, tmp_path, port)
        for number in range(PROCESSES):
            await crew.start(number, day_limit=400)
        await until(lambda: sum(metered.by_day.values()) > 60)
        crew.processes[0].send_signal(signal.SIGKILL)
        # A process that is stopped, not dead, must not hold up the others either.
        crew.processes[1].send_signal(signal.SIGSTOP)
        others = crew.processes[2:]
        async with asyncio.timeout(90):
            await asyncio.gather(*(process.wait() for process in others))
        crew.processes[1].send_signal(signal.SIGCONT)
        sent = await crew.results()
    assert sent[0] is None
    arrived = sum(metered.by_day.values())
    quota = await read_quota(store, "metered")
    assert quota.windows.spent == 400
    assert metered.over_limit == 0
    # At most the three requests of the killed process that were in flight never arrived.
    assert 400 - 3 <= arrived <= 400
    unanswered = sum(o.requests for o in quota.outcomes if o.outcome is None)
    assert unanswered <= 3


async def test_a_cut_connection_to_the_database_costs_at_most_a_grant(
    database: ThrowAwayDatabase, store: Store, midday: Clock, tmp_path: Path
) -> None:
    metered = MeteredUpstream(day_limit=300, minute_limit=1_000_000, latency=0.01, clock=midday)
    async with metered.listening() as port:
        crew = Crew(database, tmp_path, port)
        for number in range(2):
            await crew.start(number, day_limit=300)
        await until(lambda: sum(metered.by_day.values()) > 60)
        async with store.connection() as conn:
            await conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        sent = await crew.results()
    assert None not in sent
    assert metered.over_limit == 0
    arrived = sum(metered.by_day.values())
    assert 300 - 2 * 4 * 2 <= arrived <= 300
    assert (await read_quota(store, "metered")).windows.spent == 300


async def test_other_users_of_the_key_are_noticed_and_get_their_share(
    database: ThrowAwayDatabase, store: Store, midday: Clock, tmp_path: Path
) -> None:
    metered = MeteredUpstream(day_limit=300, minute_limit=1_000_000, polite=False, clock=midday)
    for _ in range(100):
        metered.respond()
    async with metered.listening() as port:
        crew = Crew(database, tmp_path, port)
        for number in range(2):
            await crew.start(number, day_limit=300)
        await crew.results()
    quota = await read_quota(store, "metered")
    assert quota.windows.foreign_use >= 100 - 6
    assert metered.over_limit <= 6
    assert sum(metered.by_day.values()) <= 300 + 6


async def test_a_stopped_server_loses_nothing(home_with_database: Path) -> None:
    settings = load_settings(environ={"HASAT_HOME": str(home_with_database)})
    upstream = Upstream("u", day_limit=500, minute_limit=6000, lanes=(Lane("all", early=True),))
    for spent in (1, 2, 3):
        # The embedded server stops with the last who uses it.
        async with open_store(settings) as store, Budget(store, upstream) as budget:
            await budget.acquire("all", job="job")
            windows = (await read_quota(store, "u")).windows
            assert (windows.spent, windows.written_off) == (spent, 0)


async def test_what_a_database_crash_loses_is_counted_as_spent(home_with_database: Path) -> None:
    """On a server of its own, which does not wait for the disk with every grant."""
    settings = load_settings(environ={"HASAT_HOME": str(home_with_database)})
    upstream = Upstream("u", day_limit=500, minute_limit=6000, lanes=(Lane("all", early=True),))
    granted = 0
    async with open_store(settings) as store, Budget(store, upstream) as budget:

        async def some(count: int) -> None:
            nonlocal granted
            for _ in range(count):
                await budget.acquire("all", job="job")
                granted += 1

        await some(30)
        pid = (home_with_database / "postgres" / "data" / "postmaster.pid").read_text().split()[0]
        os.kill(int(pid), signal.SIGQUIT)
        written_off = spent = 0
        async with asyncio.timeout(90):
            # It takes a moment to die, and grants until then.
            while written_off == 0:
                with suppress(DatabaseError):
                    await some(1)
                    windows = (await read_quota(store, "u")).windows
                    written_off, spent = windows.written_off, windows.spent
        assert written_off == 60, "0.6 s at 100 a second"
        assert spent >= granted
