"""Measure the tail latency of parcel lookups over six endpoints, and its cost in requests.

Three scenes against HTTP servers on loopback, each with six endpoints of 50 ms:

- spread: 1 % of all responses, independently, take 50 times as long;
- one-bad: one endpoint takes 50 times as long for 30 % of its responses;
- faulty: one endpoint closes connections, one is slow (50 times), one returns 403 at once.

The first two compare four ways at the same time: one try, three at once as in the original, the
`hedge-python` package (the extra `bench`; omitted if not installed) and the documented client of
Hasat, `TKGMClient.get_parcel`, one call after another, with its default interval of 200 ms and its
state and budget in PostgreSQL. Every call counts, the first included. Ratios are relative to one
try in the same run. The servers count the requests.

Each scene is measured on the machine as it is and with a busy process per processor.
`processors_busy` is the share of the processors that all programs used meanwhile: figures of "as it
is" are those of a calm machine only where it is small. Run
`python bench/hedge.py` (about six minutes), `--seeds 10` for the figures in the documentation, or
`--json`.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import psutil  # type: ignore[import-untyped]
import structlog

from hasat.errors import UnavailableError
from hasat.settings import load_settings
from hasat.sources.tkgm import AsyncTKGMClient

BASE_SECONDS = 0.05
SLOWER = 50
ENDPOINTS = 6
TIMEOUT = 15.0
DEAD = 0
FEATURE = b'{"type":"Feature","geometry":null,"properties":{}}'

Send = Callable[[], Awaitable[None]]


# --- the servers ----------------------------------------------------------------------------------


class Caller(asyncio.Protocol):
    """One connection: respond after a delay, unless the caller disconnects."""

    def __init__(self, count: Callable[[], None], behave: Callable[[], tuple[int, float]]) -> None:
        self._count = count
        self._behave = behave
        self._pending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._count()
        status, seconds = self._behave()
        if status == DEAD:
            self._transport.abort()
            return
        self._pending = asyncio.get_running_loop().call_later(seconds, self._respond, status)

    def _respond(self, status: int) -> None:
        body = FEATURE if status == 200 else b""
        head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pending:
            self._pending.cancel()


def behaviour(scene: str, place: int, rng: random.Random) -> Callable[[], tuple[int, float]]:
    """Return a function that draws the status and duration of an endpoint's next response."""
    slow_share = {"spread": 0.01, "one-bad": 0.3 if place == 0 else 0.0}.get(scene, 0.0)
    if scene == "faulty":
        slow_share = 1.0 if place == 1 else 0.0
        if place in (0, 2):
            return lambda: (DEAD, 0.0) if place == 0 else (403, 0.001)

    def behave() -> tuple[int, float]:
        seconds = BASE_SECONDS * rng.uniform(0.9, 1.1)
        return 200, seconds * (SLOWER if rng.random() < slow_share else 1)

    return behave


async def serve(scene: str, seed: int) -> None:
    """Serve six endpoints; print their addresses, and at the end their request counts."""
    counts = [0] * ENDPOINTS
    loop = asyncio.get_running_loop()
    servers = []
    for place in range(ENDPOINTS):
        behave = behaviour(scene, place, random.Random(f"{seed}:{place}"))

        def count(place: int = place) -> None:
            counts[place] += 1

        def caller(count: Callable[[], None] = count, behave: Any = behave) -> Caller:
            return Caller(count, behave)

        servers.append(await loop.create_server(caller, "127.0.0.1", 0))
    urls = [f"http://127.0.0.1:{s.sockets[0].getsockname()[1]}" for s in servers]
    print(json.dumps(urls), flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    print(json.dumps(counts), flush=True)


# --- the clients ----------------------------------------------------------------------------------


@asynccontextmanager
async def one_try(urls: Sequence[str]) -> AsyncIterator[Send]:
    """Send one request, to the endpoints in turn."""
    turn = iter(range(10**9))
    async with httpx2.AsyncClient(trust_env=False, timeout=TIMEOUT) as client:

        async def send() -> None:
            (await client.get(f"{urls[next(turn) % ENDPOINTS]}/parsel/1/2")).raise_for_status()

        yield send


@asynccontextmanager
async def three_at_once(urls: Sequence[str]) -> AsyncIterator[Send]:
    """Send the same request to three endpoints, as the original does; the first response counts."""
    turn = iter(range(10**9))
    async with httpx2.AsyncClient(trust_env=False, timeout=TIMEOUT) as client:

        async def send() -> None:
            first = next(turn) * 3
            tasks = {
                asyncio.ensure_future(client.get(f"{urls[(first + n) % ENDPOINTS]}/parsel/1/2"))
                for n in range(3)
            }
            _, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in late:
                task.cancel()

        yield send


@asynccontextmanager
async def hedge_python(urls: Sequence[str]) -> AsyncIterator[Send]:
    """Use the package `hedge-python` with its defaults, over the endpoints in turn."""
    package = importlib.import_module("hedge")
    transport = importlib.import_module("hedge.transport")

    turn = iter(range(10**9))
    async with transport.HedgedAiohttpSession(config=package.HedgeConfig()) as session:

        async def send() -> None:
            response = await session.get(f"{urls[next(turn) % ENDPOINTS]}/parsel/1/2")
            await response.read()
            response.release()

        yield send


@asynccontextmanager
async def hasat(urls: Sequence[str]) -> AsyncIterator[Send]:
    """Use the documented client as a program would, for a different point each time."""
    points = iter(range(10**9))
    with tempfile.TemporaryDirectory() as home:
        workers = Path(home) / "workers.json"
        workers.write_text(json.dumps({"api_key": "bench", "workers": list(urls)}))
        environ = {"HASAT_HOME": home, "HASAT_TKGM_DAILY_PER_ENDPOINT": "1000000"}
        settings = load_settings(environ=environ, cwd=Path(home))
        async with AsyncTKGMClient(workers, settings=settings) as client:

            async def send() -> None:
                with contextlib.suppress(UnavailableError):
                    await client.get_parcel(39.0 + next(points) / 10_000, 32.0)

            yield send


# The client and its concurrency: the others are faster, and no endpoint gets slower by it.
WAYS = {
    "one_try": (one_try, 12),
    "three_at_once": (three_at_once, 4),
    "hedge_python": (hedge_python, 6),
    "hasat": (hasat, 1),
}


# --- measuring ------------------------------------------------------------------------------------


async def measure(way: str, urls: Sequence[str], questions: int) -> list[float]:
    """Return the seconds of every request."""
    open_way, at_once = WAYS[way]
    seconds: list[float] = []
    left = iter(range(questions))

    async with open_way(urls) as send:

        async def worker() -> None:
            for _ in left:
                started = time.perf_counter()
                await send()
                seconds.append(time.perf_counter() - started)

        await asyncio.gather(*(worker() for _ in range(at_once)))
    return seconds


def rank(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


async def run_way(scene: str, way: str, questions: int, seed: int) -> dict[str, Any]:
    """Run one way in a separate process, against servers in another."""
    servers = await start("--serve", scene, "--seed", str(seed))
    assert servers.stdin
    assert servers.stdout
    urls = json.loads(await servers.stdout.readline())
    client = await start("--way", way, "--urls", json.dumps(urls), "--questions", str(questions))
    output, _ = await client.communicate()
    if client.returncode:
        raise SystemExit(f"{way} failed in {scene}")
    servers.stdin.write(b"done\n")
    counts, _ = await servers.communicate()
    result: dict[str, Any] = json.loads(output)
    return result | {"requests": json.loads(counts), "asked": questions}


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )


async def run_scene(scene: str, ways: Sequence[str], questions: int, seed: int) -> dict[str, Any]:
    results = await asyncio.gather(*(run_way(scene, way, questions, seed) for way in ways))
    table: dict[str, Any] = {}
    for way, result in zip(ways, results, strict=True):
        seconds = result["seconds"]
        table[way] = {
            **{f"p{name}_ms": round(rank(seconds, share) * 1000, 1) for name, share in SHARES},
            "extra_share": round(sum(result["requests"]) / result["asked"] - 1, 4),
            "requests": result["requests"],
        }
    if "one_try" in table:
        for row in table.values():
            row["p999_ratio"] = round(table["one_try"]["p99.9_ms"] / row["p99.9_ms"], 1)
    return table


SHARES = (("50", 0.5), ("95", 0.95), ("99", 0.99), ("99.9", 0.999))
SCENES = ("spread", "one-bad")


@contextlib.contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    """Keep as many processes busy as given."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


async def run(questions: int, seed: int, seeds: int) -> dict[str, Any]:
    known = importlib.util.find_spec("hedge") and importlib.util.find_spec("aiohttp")
    ways = [way for way in WAYS if way != "hedge_python" or known]
    runs: list[dict[str, Any]] = []
    for number in range(seed, seed + seeds):
        for load in (0, os.cpu_count() or 1):
            with busy_machine(load):
                for scene in SCENES:
                    psutil.cpu_percent()
                    table = await run_scene(scene, ways, questions, number)
                    busy = round(psutil.cpu_percent() / 100, 2)
                    about = {"scene": scene, "seed": number, "load": load, "processors_busy": busy}
                    runs.append(about | {"ways": table})
                    show_run(runs[-1])
    faulty = await run_scene("faulty", ["hasat"], questions // 5, seed)
    requests = faulty["hasat"]["requests"]
    after_three = sum(max(count - 3, 0) for count in requests[:3])
    summary = {
        f"{scene}, {name}": {
            "p999_ratios": [one["ways"]["hasat"]["p999_ratio"] for one in of_kind],
            "extra_shares": [one["ways"]["hasat"]["extra_share"] for one in of_kind],
            "processors_busy": [one["processors_busy"] for one in of_kind],
        }
        for scene in SCENES
        for name, is_loaded in (("as it is", False), ("with load", True))
        if (of_kind := [r for r in runs if r["scene"] == scene and bool(r["load"]) == is_loaded])
    }
    return {
        "summary": summary,
        "faulty_share": round(after_three / sum(requests), 4),
        "runs": runs,
        "hedge_python": "measured" if known else "not installed: pip install 'hasat[bench]'",
        "questions": questions,
        "processors": os.cpu_count(),
    }


def show_run(result: dict[str, Any]) -> None:
    """Print one run to standard error, as progress."""
    load = f"{result['load']} busy processes" if result["load"] else "the machine as it is"
    busy = f"processors {result['processors_busy']:.0%} busy"
    print(f"\n{result['scene']}, seed {result['seed']}, {load}, {busy}", file=sys.stderr)
    print(
        f"  {'':15}{'p50':>9}{'p95':>9}{'p99':>9}{'p99.9':>9}  {'better':>7}{'more':>8}",
        file=sys.stderr,
    )
    for way, row in result["ways"].items():
        times = "".join(f"{row[f'p{name}_ms']:>9.1f}" for name, _ in SHARES)
        ratio, more = f"{row['p999_ratio']:.1f}x", f"{row['extra_share']:.2%}"
        print(f"  {way:15}{times}  {ratio:>7}{more:>8}  {row['requests']}", file=sys.stderr)


def show(result: dict[str, Any]) -> None:
    print(
        "\np99.9 compared with one try, more requests (min, median, max over all seeds), and how "
        "busy the processors were (median)"
    )
    for name, figures in result["summary"].items():
        ratios, extra = sorted(figures["p999_ratios"]), sorted(figures["extra_shares"])
        print(
            f"  {name:20} {ratios[0]:>5.1f}x {median(ratios):>5.1f}x {ratios[-1]:>5.1f}x"
            f"   {extra[0]:>6.2%} {median(extra):>6.2%} {extra[-1]:>6.2%}"
            f"   {median(figures['processors_busy']):>4.0%}"
        )
    print(f"faulty endpoints after three requests each: {result['faulty_share']:.2%} of requests")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--questions", type=int, default=2000, help="requests per way and scene")
    parser.add_argument("--seed", type=int, default=1, help="first seed of the servers")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--urls", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # This file has the name of a package that it measures, and its folder comes first in sys.path.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if options.serve:
        asyncio.run(serve(options.serve, options.seed))
    elif options.way:
        urls = json.loads(options.urls)
        seconds = asyncio.run(measure(options.way, urls, options.questions))
        print(json.dumps({"seconds": seconds}))
    else:
        result = asyncio.run(run(options.questions, options.seed, options.seeds))
        print(json.dumps(result, indent=2)) if options.json else show(result)


if __name__ == "__main__":
    main()
