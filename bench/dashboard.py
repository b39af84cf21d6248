"""How soon the pages come with a full house behind them, and what a hundred open ones cost.

First every page is asked for again and again, from a house with so many taxpayers and parcels, a
month of runs and a day's ledger of requests; with Chromium at hand (HASAT_CHROMIUM) its first
contentful paint is taken too, which depends more on the machine's browser: a small drawing is there
to compare. Most of the taxpayers are copies, made in the database, of those that a sync brought in:
only what pages read is filled. Then, in another house, syncs are run in pairs, one while nobody
looks and one while so many pages are open and kept up to date; the ratio of their medians says what
the readers cost the collector.

    python bench/dashboard.py                      # 1.5 million taxpayers, 50,000 parcels
    python bench/dashboard.py --minutes 10         # readers for ten minutes instead of two
    python bench/dashboard.py --folder FOLDER      # fills the houses there once and keeps them
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx2
import psutil  # type: ignore[import-untyped]
import structlog
from psycopg import sql

from hasat.cli.runtime import open_migrated_store
from hasat.http.listener import bind
from hasat.settings import Settings, load_settings
from hasat.sources.gib.simulator.lists import BOXES, ListVariant, Publisher
from hasat.sources.tkgm.features import format_key, publish_parcels
from hasat.sources.tkgm.registry.wire import parse_parcel
from hasat.store import Store

ALLOWED_MS = 300.0
ALLOWED_SLOWING = 1.10
TIMES, PAINTS = 20, 2
LISTED, RUNS, REQUESTS = 50_000, 30_000, 75_000
WEST, SOUTH, STEP, ABREAST = 32.5, 39.5, 0.0003, 250
# Next to nothing: what the browser itself takes.
PLAIN = "a small drawing"
PAGES = {
    PLAIN: "/favicon.svg",
    "overview": "/",
    "quota": "/quota",
    "runs": "/runs",
    "runs that went wrong": "/runs?bad=1",
    "one run": "/runs/17",
    "changes": "/changes?dataset=einvoice",
    "one record": "/changes/record?dataset=einvoice&key={identifier}",
    "taxpayers": "/taxpayers",
    "by number": "/taxpayers?q={identifier}",
    "by title": "/taxpayers?q=deniz",
    "by alias": "/taxpayers?alias={alias}",
    "parcels": "/parcels",
    "an area": "/parcels?area=32.51,39.51,32.52,39.52",
    "football": "/football",
    "delivery": "/delivery",
    "doctor": "/doctor",
}
OPENED = ("/", "/quota", "/runs", "/changes", "/taxpayers", "/parcels", "/football", "/delivery")


@dataclass(frozen=True)
class Page:
    """One page: its HTML from question to last byte, and when a browser first shows something."""

    name: str
    median_ms: float
    p95_ms: float
    kilobytes: float
    paint_ms: float | None

    @property
    def kept(self) -> bool:
        return max(self.p95_ms, self.paint_ms or 0.0) <= ALLOWED_MS


@dataclass(frozen=True)
class Readers:
    """What open pages cost the syncs beside them, and what they were told."""

    readers: int
    syncs: int
    alone_seconds: float
    beside_seconds: float
    messages: int
    server_core_percent: float

    @property
    def ratio(self) -> float:
        return self.beside_seconds / self.alone_seconds


class House:
    """A house of its own in a folder, with the commands that a person would run."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.home = folder, folder / name
        with bind("127.0.0.1", 0) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> Settings:
        return load_settings(environ={"HASAT_HOME": str(self.home)})

    @property
    def environ(self) -> dict[str, str]:
        return os.environ | {
            "HASAT_HOME": str(self.home),
            "HASAT_PORT": str(self.port),
            "HASAT_LOG_LEVEL": "error",
        }

    def lists(self, name: str) -> list[str]:
        place = self.folder / f"{LISTED}-{name}"
        return [str(place / f"newUser{box.title()}Listxml.zip") for box in BOXES]

    def write_lists(self, names: Sequence[str]) -> None:
        """The lists as first seen, and a step on."""
        if all(Path(path).exists() for name in names for path in self.lists(name)):
            return
        publisher = Publisher(LISTED)
        for name in names:
            place = self.folder / f"{LISTED}-{name}"
            place.mkdir(parents=True, exist_ok=True)
            publisher.write(place, ListVariant())
            publisher.step()

    def sync(self, name: str) -> float:
        """Seconds from the lists on disk to the commit."""
        pk, gb = self.lists(name)
        told = self._command("gib", "sync", "--pk", pk, "--gb", gb, "--json")
        return float(json.loads(told)["seconds"])

    def prepare_search(self) -> None:
        self._command("jobs", "run", "gib_search")

    def _command(self, *words: str) -> str:
        command = [sys.executable, "-m", "hasat", *words]
        done = subprocess.run(command, env=self.environ, stdout=subprocess.PIPE, check=False)
        if done.returncode not in {0, 3}:
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}.")
        return done.stdout.decode()

    async def fill(self, store: Store, users: int, parcels: int) -> None:
        """Everything that the pages read, unless it is there."""
        async with store.connection() as conn:
            there = await conn.execute("SELECT FROM feed.head WHERE dataset = 'parcels'")
            if there.rowcount:
                return
        await asyncio.to_thread(self.sync, "first")
        async with store.connection() as conn:
            await conn.execute("SET LOCAL session_replication_role = replica")
            for dataset in ("einvoice", "edespatch"):
                more = sql.SQL(_MORE_TAXPAYERS).format(table=sql.Identifier("core", dataset))
                await conn.execute(more, {"dataset": dataset, "times": users // LISTED - 1})
        await asyncio.to_thread(self.prepare_search)
        for begin in range(0, parcels, 5_000):
            told = [parse_parcel(_parcel(number)) for number in range(begin, begin + 5_000)]
            await publish_parcels(store, {format_key(one.key): one for one in told}, run=None)
        async with store.connection() as conn:
            await conn.execute(_SOME_RUNS, {"count": RUNS})
            await conn.execute(_SOME_REQUESTS, {"count": REQUESTS})
            await conn.execute("ANALYZE")

    async def examples(self, store: Store) -> dict[str, str]:
        """A taxpayer to be looked for."""
        async with store.connection() as conn:
            found = await conn.execute(
                "SELECT key, body #>> '{aliases,0,alias}' FROM core.einvoice"
                " WHERE body #>> '{aliases,0,alias}' IS NOT NULL LIMIT 1"
            )
            row = await found.fetchone()
        assert row is not None
        return {"identifier": row[0], "alias": row[1]}

    def _serve(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "hasat", "serve"], env=self.environ)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[psutil.Process]:
        """The server, as soon as it answers."""
        server = self._serve()
        try:
            async with httpx2.AsyncClient() as client:
                while True:
                    with contextlib.suppress(httpx2.HTTPError):
                        if (await client.get(f"{self.address}/taxpayers")).is_success:
                            break
                    if server.poll() is not None:
                        raise SystemExit("The server has ended.")
                    await asyncio.sleep(0.2)
            yield psutil.Process(server.pid)
        finally:
            server.terminate()
            server.wait()


_MORE_TAXPAYERS = """
WITH more AS (
    INSERT INTO {table} (key, body, digest, seq, first_seen_at, changed_at)
    SELECT number, body || jsonb_build_object('identifier', number), digest, seq, first_seen_at,
           changed_at
      FROM {table}, generate_series(1::bigint, %(times)s) AS n,
           LATERAL (SELECT lpad(((key::bigint + n * 987654321) %% 10000000000)::text, 10, '0'))
           AS other (number)
     ORDER BY number
        ON CONFLICT DO NOTHING
    RETURNING 1)
UPDATE feed.head SET records = records + (SELECT count(*) FROM more) WHERE dataset = %(dataset)s
"""
_SOME_RUNS = """
INSERT INTO jobs.run (job, trigger, queued_at, started_at, finished_at, state, outcome, requests)
SELECT (ARRAY['gib_sync', 'daily_standings', 'injuries_hourly', 'tkgm_scan'])[1 + n %% 4], 'hand',
       at, at, at + interval '20 seconds', 'finished',
       (ARRAY['done', 'done', 'nothing', 'failed'])[1 + n %% 4], n %% 40
  FROM (SELECT n, now() - (%(count)s - n) * interval '90 seconds' AS at
          FROM generate_series(1, %(count)s) AS n) AS t
"""
_SOME_REQUESTS = """
INSERT INTO budget.request (at, upstream, day, lane, job, cost, waited_seconds, outcome, latency_ms)
SELECT now() - n * interval '1 second', 'football', current_date, 'details',
       'fixture_details_backfill_season', 1, 0, 'ok', 20 + n %% 300
  FROM generate_series(1, %(count)s) AS n
"""


def _parcel(number: int) -> dict[str, Any]:
    """A square among others, in rows."""
    row, column = divmod(number, ABREAST)
    west, south = WEST + column * STEP, SOUTH + row * STEP
    east, north = west + STEP, south + STEP
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {
            "mahalleId": 1 + number // 5_000,
            "adaNo": str(100 + row),
            "parselNo": str(1 + column),
            "mahalleAd": "Merkez",
            "ilceAd": "Polatlı",
            "ilAd": "Ankara",
            "nitelik": ("Tarla", "Arsa", "Bahçe")[number % 3],
            "alan": "900.00",
            "durum": "1",
        },
    }


async def ask_for_pages(house: House, values: dict[str, str]) -> list[Page]:
    """Every page by turns, so that a moment of the machine strikes all alike."""
    paths = {name: path.format_map(values) for name, path in PAGES.items()}
    taken: dict[str, list[float]] = {name: [] for name in paths}
    size: dict[str, int] = {}
    async with httpx2.AsyncClient(headers={"Accept": "text/html"}, timeout=60) as client:
        for turn in range(TIMES + 1):
            for name, path in paths.items():
                began = time.perf_counter()
                answer = await client.get(f"{house.address}{path}")
                if answer.status_code != 200:
                    raise SystemExit(f"{path} is answered with {answer.status_code}.")
                # The first turn wakes everybody up.
                if turn:
                    taken[name].append(1000 * (time.perf_counter() - began))
                size[name] = len(answer.content)
    paints = await asyncio.to_thread(_paints, house.address, paths)
    return [
        Page(
            name,
            round(median(times), 1),
            round(quantiles(times, n=20)[-1], 1),
            round(size[name] / 1000, 1),
            paints.get(name),
        )
        for name, times in taken.items()
    ]


def _paints(address: str, paths: dict[str, str]) -> dict[str, float]:
    """When a browser that has been here before first shows something of each page."""
    if not (chromium := os.environ.get("HASAT_CHROMIUM")):
        return {}
    from playwright.sync_api import sync_playwright

    look = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    found: dict[str, list[float]] = {name: [] for name in paths}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for _ in range(PAINTS):
            for name, path in paths.items():
                # What the page before has left to do, a map above all, is no part of this one.
                page.goto(f"{address}{paths[PLAIN]}", wait_until="load", timeout=120_000)
                page.goto(f"{address}{path}", wait_until="load", timeout=120_000)
                # The page's own policy lets nobody wait inside of it.
                while (shown_at := page.evaluate(look)) is None:
                    page.wait_for_timeout(20)
                found[name].append(float(shown_at))
        browser.close()
    return {name: round(median(times), 1) for name, times in found.items()}


class Watching:
    """Pages that are open, as a browser keeps them."""

    def __init__(self, house: House, readers: int) -> None:
        self._house, self._readers = house, readers
        self.messages = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        limits = httpx2.Limits(max_connections=self._readers)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                httpx2.AsyncClient(limits=limits, timeout=None)
            )
            reading = [
                asyncio.create_task(self._read(client, OPENED[n % len(OPENED)], n))
                for n in range(self._readers)
            ]
            try:
                yield
            finally:
                for task in reading:
                    task.cancel()
                await asyncio.gather(*reading, return_exceptions=True)

    async def _read(self, client: httpx2.AsyncClient, path: str, number: int) -> None:
        # The server ends a stream after a while, and a browser comes again.
        headers = {"Accept-Language": ("en", "tr")[number // len(OPENED) % 2]}
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                address = f"{self._house.address}/live"
                query = {"at": path}
                async with client.stream("GET", address, params=query, headers=headers) as answer:
                    async for line in answer.aiter_lines():
                        self.messages += line.startswith("data:")
            await asyncio.sleep(0.5)


async def watch(house: House, server: psutil.Process, readers: int, minutes: float) -> Readers:
    """Syncs in pairs: while nobody looks, and while all those pages are open."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    watching = Watching(house, readers)
    spent = wall = 0.0
    states = 0
    ends = time.monotonic() + 60 * minutes
    while time.monotonic() < ends or len(seconds[True]) < 3:
        # Who begins changes from pair to pair.
        for beside in (False, True) if len(seconds[True]) % 2 else (True, False):
            async with AsyncExitStack() as stack:
                if beside:
                    await stack.enter_async_context(watching.open())
                    await asyncio.sleep(2)
                before, began = _processor(server), time.monotonic()
                states += 1
                name = ("changed", "first")[(states - 1) % 2]
                seconds[beside].append(await asyncio.to_thread(house.sync, name))
                if beside:
                    spent += _processor(server) - before
                    wall += time.monotonic() - began
    return Readers(
        readers,
        len(seconds[True]),
        round(median(seconds[False]), 2),
        round(median(seconds[True]), 2),
        watching.messages,
        round(100 * spent / wall, 1),
    )


def _processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure_pages(house: House, users: int, parcels: int) -> list[Page]:
    async with open_migrated_store(house.settings) as store:
        await house.fill(store, users, parcels)
        values = await house.examples(store)
        async with house.serving():
            return await ask_for_pages(house, values)


async def measure_readers(house: House, readers: int, minutes: float) -> Readers:
    async with open_migrated_store(house.settings), house.serving() as server:
        await asyncio.to_thread(house.sync, "first")
        return await watch(house, server, readers, minutes)


def show(pages: Sequence[Page], found: Readers | None) -> None:
    print(f"{'page':22} {'median':>9} {'p95':>9} {'first paint':>12}   allowed {ALLOWED_MS:.0f} ms")
    for page in pages:
        paint = "" if page.paint_ms is None else f"{page.paint_ms:9.0f} ms"
        times = f"{page.median_ms:6.0f} ms {page.p95_ms:6.0f} ms {paint:>12}"
        print(f"{page.name:22} {times}   {'kept' if page.kept else 'MISSED'}")
    if found is not None:
        print(
            f"\n{found.readers} open pages, {found.syncs} pairs of syncs: {found.alone_seconds} s "
            f"alone, {found.beside_seconds} s beside them: {found.ratio:.2f} x "
            f"(allowed {ALLOWED_SLOWING}: {'kept' if found.ratio <= ALLOWED_SLOWING else 'MISSED'})"
            f"\nthe readers were told {found.messages:,} times; "
            f"the server took {found.server_core_percent} % of a core"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    users = int(os.environ.get("HASAT_BENCH_USERS", "1500000"))
    parser.add_argument("--users", type=int, default=users)
    parser.add_argument("--parcels", type=int, default=50_000)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=2.0, help="0: only ask for pages")
    parser.add_argument("--folder", type=Path, help="where the houses are, or will be kept")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory(prefix="hasat-bench-dashboard-") as scratch:
        # The server's own user must be able to get there.
        Path(scratch).chmod(0o711)
        folder = asked.folder or Path(scratch)
        full, small = House(folder, "full"), House(folder, "small")
        full.write_lists(["first", "changed"])
        pages = asyncio.run(measure_pages(full, asked.users, asked.parcels))
        found = None
        if asked.minutes:
            found = asyncio.run(measure_readers(small, asked.readers, asked.minutes))
    if asked.json:
        told = {"pages": [asdict(one) for one in pages], "readers": found and asdict(found)}
        print(json.dumps(told, indent=2))
    else:
        show(pages, found)
    slowed = found is not None and found.ratio > ALLOWED_SLOWING
    return int(slowed or not all(page.kept for page in pages))


if __name__ == "__main__":
    raise SystemExit(main())
