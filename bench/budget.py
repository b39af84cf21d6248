"""Measure the budget with four processes against a server that counts requests.

A day is compressed: the clock of the database and the server's run fast, and everything is counted
by the server. Five scenes: as it is; one process killed -9; clocks of machines wrong by minutes;
the database crashed and started again; a contrary server that queues what comes too thick, whose
headers are stale or missing, and that says 200 when the day is spent. Also: how long a high
lane waits in real time while backfill saturates the minute, and how many grants a second there are.

Run `python bench/budget.py`, or with `--json`. It starts a PostgreSQL of its own.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from hasat.budget import Budget, Lane, Remaining, Upstream, read_quota
from hasat.errors import DatabaseError, OutOfQuotaError
from hasat.settings import load_settings
from hasat.store import Store, open_store
from hasat.store.store import connect
from hasat.testing.http import MeteredUpstream

DAY = datetime(2026, 3, 10, tzinfo=UTC)
LEAD = timedelta(hours=3)
PROCESSES = 4


@dataclass(frozen=True)
class Plan:
    """One scene: the limits, how fast time runs, and what is done to whom."""

    name: str
    home: str
    port: int = 0
    day_limit: int = 4500
    minute_hard: int = 60
    minute_soft: int = 50
    speed: float = 1440.0
    began: float = 0.0
    """The machine's time when the budget's clock showed `DAY - LEAD`."""
    seconds: float = 0.0
    high_every: float = 0.25
    skew: float = 0.0

    def upstream(self) -> Upstream:
        reserve = self.day_limit // 10
        return Upstream(
            self.name,
            day_limit=self.day_limit,
            minute_limit=self.minute_soft,
            minute_hard=self.minute_hard,
            lanes=(
                Lane("daily", keep=reserve, needs=self.day_limit // 10, early=True),
                Lane("backfill", keep=reserve, paced=True),
                Lane("verify", keep=reserve, paced=True, share=0.05),
            ),
        )

    def clock(self) -> datetime:
        return DAY - LEAD + timedelta(seconds=(time.time() - self.began) * self.speed)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)

    async def wind(self, store: Store) -> None:
        """Make the database's clock run like this plan's."""
        start = (DAY - LEAD).isoformat()
        async with store.connection() as conn:
            await conn.execute(
                "CREATE OR REPLACE FUNCTION budget.now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                f" AS $$ SELECT timestamptz '{start}'"
                f" + (clock_timestamp() - to_timestamp({self.began})) * {self.speed} $$"
            )


class Line:
    """One kept-alive HTTP connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self) -> tuple[str, Remaining]:
        """Ask once; the outcome and what the headers say."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(b"GET / HTTP/1.1\r\nhost: metered\r\n\r\n")
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines if line)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        said = " ".join(body["errors"].values()) if body["errors"] else ""
        left = Remaining(
            **{
                name: int(headers[header])
                for name, header in (
                    ("day", "x-ratelimit-requests-remaining"),
                    ("day_limit", "x-ratelimit-requests-limit"),
                    ("minute", "x-ratelimit-remaining"),
                    ("minute_limit", "x-ratelimit-limit"),
                )
                if header in headers
            }
        )
        if " day" in said:
            return "day_exhausted", left
        return ("minute_limited" if said else "ok"), left


async def work(plan: Plan) -> dict[str, Any]:
    """One process: high-lane requests now and then, backfill and verification without end."""
    dice = random.Random(os.getpid())
    waits: list[float] = []
    settings = load_settings(environ={"HASAT_HOME": plan.home})
    ends = 0.0

    async def ask(budget: Budget, lane: str, line: Line) -> None:
        try:
            grant = await budget.acquire(lane, job=f"{lane} job", timeout=1e9)
        except (OutOfQuotaError, DatabaseError):
            await asyncio.sleep(0.05)
            return
        if lane == "daily":
            waits.append(grant.waited)
        outcome, left = await line.get()
        try:
            await grant.settle(outcome, left, 0.001)
        except DatabaseError:
            return  # counted as spent without an answer

    async def steady(budget: Budget, lane: str) -> None:
        line = Line(plan.port)
        while _real_time() < ends:
            await ask(budget, lane, line)

    async def now_and_then(budget: Budget) -> None:
        line = Line(plan.port)
        while _real_time() < ends:
            await asyncio.sleep(dice.expovariate(1 / plan.high_every))
            await ask(budget, "daily", line)

    async with (
        open_store(settings) as store,
        Budget(store, plan.upstream(), sleep=plan.sleep) as budget,
    ):
        print("ready", flush=True)
        ends = float(await asyncio.to_thread(sys.stdin.readline)) + plan.seconds
        tasks = [
            asyncio.create_task(job)
            for job in (
                now_and_then(budget),
                steady(budget, "backfill"),
                steady(budget, "backfill"),
                steady(budget, "verify"),
            )
        ]
        _, late = await asyncio.wait(tasks, timeout=max(0.0, ends - _real_time()) + 1)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {"waits": waits}


async def hurry(plan: Plan) -> dict[str, Any]:
    """One process: acquire as fast as possible."""
    settings = load_settings(environ={"HASAT_HOME": plan.home})
    upstream = replace(plan.upstream(), opening_seconds=0)
    taken: list[float] = []
    async with open_store(settings) as store, Budget(store, upstream) as budget:

        async def one(ends: float) -> None:
            while (began := time.perf_counter()) < ends:
                await budget.acquire("daily", job="hurry")
                taken.append(time.perf_counter() - began)

        await one(time.perf_counter() + 0.5)
        taken.clear()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        ends = time.perf_counter() + plan.seconds
        await asyncio.gather(one(ends), one(ends))
    return {"taken": taken}


_real_time = time.time


class Crew:
    """The processes of one scene."""

    def __init__(self, plan: Plan, task: str) -> None:
        self.plan = plan
        self._task = task
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self, skews: tuple[float, ...] = (0.0,) * PROCESSES) -> None:
        for skew in skews:
            given = json.dumps(asdict(replace(self.plan, skew=skew)))
            self.processes.append(
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    __file__,
                    self._task,
                    given,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
            )

    async def all_ready(self) -> None:
        for process in self.processes:
            assert process.stdout is not None
            await process.stdout.readline()

    def go(self, began: float) -> None:
        """Let all begin together."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{began}\n".encode())

    async def results(self) -> list[dict[str, Any]]:
        said = await asyncio.gather(*(process.communicate() for process in self.processes))
        return [json.loads(out) for out, _ in said if out]


Trouble = Callable[[Crew], Awaitable[None]]


async def compressed_day(
    store: Store,
    plan: Plan,
    trouble: Trouble | None,
    skews: tuple[float, ...],
    **character: Any,
) -> dict[str, Any]:
    """One day from midnight to midnight, as the server counted it."""
    plan = replace(
        plan, seconds=(LEAD + timedelta(days=1, minutes=30)).total_seconds() / plan.speed
    )
    metered = MeteredUpstream(plan.day_limit, plan.minute_hard, **character)
    async with metered.listening() as port:
        crew = Crew(replace(plan, port=port), "work")
        await crew.start(skews)
        await crew.all_ready()
        # Three hours before midnight, so that all are at work when the day begins.
        plan = replace(plan, began=time.time())
        metered.clock = plan.clock
        await plan.wind(store)
        crew.go(plan.began)
        if trouble is not None:
            await asyncio.sleep(plan.seconds * 0.45)
            await trouble(crew)
        results = await crew.results()
    waits = [wait for result in results for wait in result["waits"]]
    target = int(plan.day_limit * 0.9)
    sent = metered.by_day[DAY.date().isoformat()]
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT spent, written_off, foreign_use FROM budget.day"
            " WHERE upstream = %s AND day = %s",
            [plan.name, DAY.date()],
        )
        row = await cursor.fetchone()
    return {
        "over_limit": metered.over_limit,
        "spent_share": sent / target,
        "sent": sent,
        "target": target,
        "high_lane_requests": len(waits),
        "high_lane_wait_p99": _p99(waits),
        "ledger": dict(zip(("spent", "written_off", "foreign_use"), row or (), strict=False)),
        "next_day": metered.by_day[(DAY + timedelta(days=1)).date().isoformat()],
    }


async def saturated_minute(store: Store, home: str, seconds: float) -> dict[str, Any]:
    """Real time: backfill takes every slot of the minute, a high lane comes in between."""
    plan = Plan("minute", home, day_limit=100_000_000, minute_hard=450, minute_soft=400, speed=1.0)
    # Noon of the next day, where the pace of backfill is far above the minute's rate.
    began = time.time() - (LEAD + timedelta(hours=12)).total_seconds()
    await replace(plan, began=began).wind(store)
    metered = MeteredUpstream(plan.day_limit, plan.minute_hard)
    async with metered.listening() as port:
        crew = Crew(replace(plan, port=port, seconds=seconds, high_every=1.0), "work")
        await crew.start()
        await crew.all_ready()
        crew.go(time.time())
        results = await crew.results()
    waits = [wait for result in results for wait in result["waits"]]
    lanes = {lane.name: lane.spent for lane in (await read_quota(store, plan.name)).lanes}
    return {
        "over_limit": metered.over_limit,
        "high_lane_requests": len(waits),
        "high_lane_wait_p99": _p99(waits),
        "slot_seconds": 60 / 399,
        "spent": lanes,
    }


async def throughput(store: Store, home: str, seconds: float) -> dict[str, Any]:
    """Grants a second over all processes, once each of them is at work."""
    plan = Plan("hurry", home, day_limit=2_000_000_000, minute_hard=10**8, minute_soft=10**8)
    await replace(plan, speed=1.0, began=time.time()).wind(store)
    crew = Crew(replace(plan, seconds=seconds), "hurry")
    await crew.start()
    await crew.all_ready()
    crew.go(time.time())
    taken = [one for result in await crew.results() for one in result["taken"]]
    return {"grants_per_second": len(taken) / seconds, "acquire_p99": _p99(taken)}


def _p99(values: list[float]) -> float:
    return sorted(values)[max(0, int(len(values) * 0.99) - 1)] if values else 0.0


async def kill_one(crew: Crew) -> None:
    crew.processes[0].send_signal(signal.SIGKILL)


def crash_of(home: Path) -> Trouble:
    async def crash(_crew: Crew) -> None:
        """Crash the server without flushing; the next connection starts it again."""
        pid = (home / "postgres" / "data" / "postmaster.pid").read_text().split()[0]
        os.kill(int(pid), signal.SIGQUIT)

    return crash


async def measure(seconds: float, scenes: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        home = Path(name)
        home.chmod(0o711)
        settings = load_settings(environ={"HASAT_HOME": name})
        async with open_store(settings) as store:
            # A crash forgets what the log's writer had not written yet. Where a day is a minute,
            # that time must be as short, or it would be a quarter of an hour.
            async with await connect(store.url) as conn:
                await conn.execute("ALTER SYSTEM SET wal_writer_delay = '1ms'")
                await conn.execute("SELECT pg_reload_conf()")
            troubles: dict[str, tuple[Trouble | None, tuple[float, ...]]] = {
                "plain": (None, (0,) * PROCESSES),
                "killed": (kill_one, (0,) * PROCESSES),
                "skewed": (None, (0, 420, -300, 3600)),
                "crashed": (crash_of(home), (0,) * PROCESSES),
                "contrary": (None, (0,) * PROCESSES),
            }
            contrary = {
                "polite": False,
                "stale": timedelta(minutes=2),
                "silent": 7,
                "queueing": 0.05,
            }
            days = {}
            for scene, (trouble, skews) in troubles.items():
                if scene in scenes:
                    plan = Plan(scene, name, speed=86_400 / seconds)
                    character = contrary if scene == "contrary" else {}
                    days[scene] = await compressed_day(store, plan, trouble, skews, **character)
            results["days"] = days
            if "minute" in scenes:
                results["minute"] = await saturated_minute(store, name, 30)
            if "throughput" in scenes:
                results["throughput"] = await throughput(store, name, 8)
    all_of = [*days.values(), *([results["minute"]] if "minute" in results else [])]
    worst = {
        "over_limit": sum(one["over_limit"] for one in all_of),
        "spent_share": min((one["spent_share"] for one in days.values()), default=None),
        "high_lane_wait_p99": max((one["high_lane_wait_p99"] for one in all_of), default=None),
        **results.get("throughput", {}),
    }
    return {**worst, "scenes": results}


def main() -> None:
    every = ["plain", "killed", "skewed", "crashed", "contrary", "minute", "throughput"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--day-seconds", type=float, default=60.0, help="how long a day takes")
    parser.add_argument("--scenes", nargs="*", choices=every, default=every)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    if len(sys.argv) == 3 and sys.argv[1] in ("work", "hurry"):
        plan = Plan(**json.loads(sys.argv[2]))
        if plan.skew:
            # This machine's clock is wrong; the loop's and the database's are not.
            time.time = lambda: _real_time() + plan.skew
            os.environ["TZ"] = "Pacific/Kiritimati"
            time.tzset()
        print(json.dumps(asyncio.run({"work": work, "hurry": hurry}[sys.argv[1]](plan))))
        return
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments.day_seconds, arguments.scenes))
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for scene, day in result["scenes"]["days"].items():
        print(
            f"{scene:8} over the limits {day['over_limit']}, {day['spent_share']:.2%} of the "
            f"target spent, high lane waits {day['high_lane_wait_p99'] * 1000:.0f} ms (p99 of "
            f"{day['high_lane_requests']})"
        )
    if minute := result["scenes"].get("minute"):
        print(
            f"minute   saturated, in real time: high lane waits "
            f"{minute['high_lane_wait_p99']:.2f} s (p99 of {minute['high_lane_requests']}), "
            f"a slot comes every {minute['slot_seconds']:.2f} s"
        )
    if rate := result["scenes"].get("throughput"):
        print(
            f"acquire  {rate['grants_per_second']:,.0f} grants a second, "
            f"p99 {rate['acquire_p99'] * 1000:.1f} ms"
        )


if __name__ == "__main__":
    main()
