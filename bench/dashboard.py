"""Measure the response times of the pages with a large mirror, and the cost of 100 open pages.

Each page is requested repeatedly from an installation with many taxpayers and parcels, a month of
runs and a day's ledger. With Chromium (HASAT_CHROMIUM) the first contentful paint is measured too,
with a small image for comparison. Most taxpayers are copies that the database makes of those of one
sync: only tables that pages read are filled. A second installation runs syncs in pairs, with and
without open pages; the ratio of the medians is the cost of the readers.

    python bench/dashboard.py                      # 1.5 million taxpayers, 50,000 parcels
    python bench/dashboard.py --minutes 10         # readers for ten minutes instead of two
    python bench/dashboard.py --folder FOLDER      # keeps the filled installations there
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

from hasat.console.runtime import open_migrated_store
from hasat.http.listener import bind
from hasat.settings import Settings, load_settings
from hasat.sources.gib.simulator.lists import BOXES, ListVariant, Publisher
from hasat.sources.tkgm.features import format_key, publish_parcels
from hasat.sources.tkgm.registry.wire import parse_parcel
from hasat.store import Store

MAX_MS = 300.0
MAX_RATIO = 1.10
REPEATS, PAINTS = 20, 2
LISTED, RUNS, REQUESTS = 50_000, 30_000, 75_000
WEST, SOUTH, STEP, COLUMNS = 32.5, 39.5, 0.0003, 250
# A minimal response, to measure the browser itself.
PLAIN = "small image"
PAGES = {
    PLAIN: "/favicon.svg",
    "overview": "/",
    "quota": "/quota",
    "runs": "/runs",
    "failed runs": "/runs?bad=1",
    "one run": "/runs/17",
    "changes": "/changes?dataset=einvoice",
    "one record": "/changes/record?dataset=einvoice&key={identifier}",
    "taxpayers": "/taxpayers",
    "by number": "/taxpayers?q={identifier}",
    "by title": "/taxpayers?q=deniz",
    "by alias": "/taxpayers?alias={alias}",
    "parcels": "/parcels",
    "estimate": "/parcels?area=32.51,39.51,32.52,39.52",
    "football": "/football",
    "delivery": "/delivery",
    "doctor": "/doctor",
}
OPENED = ("/", "/quota", "/runs", "/changes", "/taxpayers", "/parcels", "/football", "/delivery")


@dataclass(frozen=True)
class Page:
    """The time of a page's HTML up to the last byte, and of its first contentful paint."""

    name: str
    median_ms: float
    p95_ms: float
    kilobytes: float
    paint_ms: float | None

    @property
    def is_fast(self) -> bool:
        return max(self.p95_ms, self.paint_ms or 0.0) <= MAX_MS


@dataclass(frozen=True)
class Readers:
    """The duration of syncs with and without open pages, and the events sent to the pages."""

    readers: int
    syncs: int
    alone_seconds: float
    loaded_seconds: float
    events: int
    server_core_percent: float

    @property
    def ratio(self) -> float:
        return self.loaded_seconds / self.alone_seconds


class Installation:
    """An installation in a folder, used by its commands."""

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
        """Write a version of the lists for each name."""
        if all(Path(path).exists() for name in names for path in self.lists(name)):
            return
        publisher = Publisher(LISTED)
        for name in names:
            place = self.folder / f"{LISTED}-{name}"
            place.mkdir(parents=True, exist_ok=True)
            publisher.write(place, ListVariant())
            publisher.step()

    def sync(self, name: str) -> float:
        """Sync the lists and return the seconds up to the commit."""
        pk, gb = self.lists(name)
        result = self._command("gib", "sync", "--pk", pk, "--gb", gb, "--json")
        return float(json.loads(result)["seconds"])

    def prepare_search(self) -> None:
        self._command("jobs", "run", "gib_search")

    def _command(self, *words: str) -> str:
        command = [sys.executable, "-m", "hasat", *words]
        done = subprocess.run(command, env=self.environ, stdout=subprocess.PIPE, check=False)
        if done.returncode not in {0, 3}:
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}.")
        return done.stdout.decode()

    async def fill(self, store: Store, users: int, parcels: int) -> None:
        """Fill the tables that pages read, unless they are filled."""
        async with store.connection() as conn:
            head = await conn.execute("SELECT FROM feed.head WHERE dataset = 'parcels'")
            if head.rowcount:
                return
        await asyncio.to_thread(self.sync, "first")
        async with store.connection() as conn:
            await conn.execute("SET LOCAL session_replication_role = replica")
            for dataset in ("einvoice", "edespatch"):
                more = sql.SQL(_MORE_TAXPAYERS).format(table=sql.Identifier("core", dataset))
                await conn.execute(more, {"dataset": dataset, "times": users // LISTED - 1})
        await asyncio.to_thread(self.prepare_search)
        for start in range(0, parcels, 5_000):
            found = [parse_parcel(_parcel(number)) for number in range(start, start + 5_000)]
            await publish_parcels(store, {format_key(one.key): one for one in found}, run=None)
        async with store.connection() as conn:
            await conn.execute(_SOME_RUNS, {"count": RUNS})
            await conn.execute(_SOME_REQUESTS, {"count": REQUESTS})
            await conn.execute("ANALYZE")

    async def examples(self, store: Store) -> dict[str, str]:
        """Return a taxpayer to search for."""
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
        """Start the server and wait until it responds."""
        server = self._serve()
        try:
            async with httpx2.AsyncClient() as client:
                while True:
                    with contextlib.suppress(httpx2.HTTPError):
                        if (await client.get(f"{self.address}/taxpayers")).is_success:
                            break
                    if server.poll() is not None:
                        raise SystemExit("The server stopped.")
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
    """Return a square parcel of a grid."""
    row, column = divmod(number, COLUMNS)
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


async def request_pages(installation: Installation, values: dict[str, str]) -> list[Page]:
    """Request the pages in turn, so that a slow moment affects all of them."""
    paths = {name: path.format_map(values) for name, path in PAGES.items()}
    taken: dict[str, list[float]] = {name: [] for name in paths}
    size: dict[str, int] = {}
    async with httpx2.AsyncClient(headers={"Accept": "text/html"}, timeout=60) as client:
        for turn in range(REPEATS + 1):
            for name, path in paths.items():
                started = time.perf_counter()
                response = await client.get(f"{installation.address}{path}")
                if response.status_code != 200:
                    raise SystemExit(f"{path} returned {response.status_code}.")
                # The first turn is a warm-up.
                if turn:
                    taken[name].append(1000 * (time.perf_counter() - started))
                size[name] = len(response.content)
    paints = await asyncio.to_thread(_paints, installation.address, paths)
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
    """Measure the first contentful paint of each page with a warm cache."""
    if not (chromium := os.environ.get("HASAT_CHROMIUM")):
        return {}
    from playwright.sync_api import sync_playwright

    script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    found: dict[str, list[float]] = {name: [] for name in paths}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for _ in range(PAINTS):
            for name, path in paths.items():
                # Work left over from the previous page, such as the map, must not count.
                page.goto(f"{address}{paths[PLAIN]}", wait_until="load", timeout=120_000)
                page.goto(f"{address}{path}", wait_until="load", timeout=120_000)
                # The page's content security policy forbids waiting inside the page.
                while (painted_at := page.evaluate(script)) is None:
                    page.wait_for_timeout(20)
                found[name].append(float(painted_at))
        browser.close()
    return {name: round(median(times), 1) for name, times in found.items()}


class OpenPages:
    """Event streams of open pages, reconnected as a browser does."""

    def __init__(self, installation: Installation, readers: int) -> None:
        self._installation, self._readers = installation, readers
        self.events = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        limits = httpx2.Limits(max_connections=self._readers)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                httpx2.AsyncClient(limits=limits, timeout=None)
            )
            tasks = [
                asyncio.create_task(self._read(client, OPENED[n % len(OPENED)], n))
                for n in range(self._readers)
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, client: httpx2.AsyncClient, path: str, number: int) -> None:
        # The server ends a stream after some minutes; browsers reconnect.
        headers = {"Accept-Language": ("en", "tr")[number // len(OPENED) % 2]}
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                address = f"{self._installation.address}/live"
                query = {"at": path}
                async with client.stream("GET", address, params=query, headers=headers) as response:
                    async for line in response.aiter_lines():
                        self.events += line.startswith("data:")
            await asyncio.sleep(0.5)


async def measure_syncs(
    installation: Installation, server: psutil.Process, readers: int, minutes: float
) -> Readers:
    """Run syncs in pairs, with and without open pages."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    open_pages = OpenPages(installation, readers)
    spent = wall = 0.0
    states = 0
    ends = time.monotonic() + 60 * minutes
    while time.monotonic() < ends or len(seconds[True]) < 3:
        # The order alternates.
        for is_loaded in (False, True) if len(seconds[True]) % 2 else (True, False):
            async with AsyncExitStack() as stack:
                if is_loaded:
                    await stack.enter_async_context(open_pages.open())
                    await asyncio.sleep(2)
                before, started = _processor(server), time.monotonic()
                states += 1
                name = ("changed", "first")[(states - 1) % 2]
                seconds[is_loaded].append(await asyncio.to_thread(installation.sync, name))
                if is_loaded:
                    spent += _processor(server) - before
                    wall += time.monotonic() - started
    return Readers(
        readers,
        len(seconds[True]),
        round(median(seconds[False]), 2),
        round(median(seconds[True]), 2),
        open_pages.events,
        round(100 * spent / wall, 1),
    )


def _processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure_pages(installation: Installation, users: int, parcels: int) -> list[Page]:
    async with open_migrated_store(installation.settings) as store:
        await installation.fill(store, users, parcels)
        values = await installation.examples(store)
        async with installation.serving():
            return await request_pages(installation, values)


async def measure_readers(installation: Installation, readers: int, minutes: float) -> Readers:
    async with open_migrated_store(installation.settings), installation.serving() as server:
        await asyncio.to_thread(installation.sync, "first")
        return await measure_syncs(installation, server, readers, minutes)


def show(pages: Sequence[Page], found: Readers | None) -> None:
    print(f"{'page':22} {'median':>9} {'p95':>9} {'first paint':>12}   allowed {MAX_MS:.0f} ms")
    for page in pages:
        paint = "" if page.paint_ms is None else f"{page.paint_ms:9.0f} ms"
        times = f"{page.median_ms:6.0f} ms {page.p95_ms:6.0f} ms {paint:>12}"
        print(f"{page.name:22} {times}   {'ok' if page.is_fast else 'MISSED'}")
    if found is not None:
        print(
            f"\n{found.readers} open pages, {found.syncs} pairs of syncs: {found.alone_seconds} s "
            f"alone, {found.loaded_seconds} s with open pages: {found.ratio:.2f} x "
            f"(allowed {MAX_RATIO}: {'ok' if found.ratio <= MAX_RATIO else 'MISSED'})"
            f"\n{found.events:,} events sent; "
            f"the server used {found.server_core_percent} % of a core"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    users = int(os.environ.get("HASAT_BENCH_USERS", "1500000"))
    parser.add_argument("--users", type=int, default=users)
    parser.add_argument("--parcels", type=int, default=50_000)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=2.0, help="0: only request pages")
    parser.add_argument(
        "--folder", type=Path, help="folder of the installations; temporary if not given"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory(prefix="hasat-bench-dashboard-") as scratch:
        # PostgreSQL may run as another user.
        Path(scratch).chmod(0o711)
        folder = arguments.folder or Path(scratch)
        full, small = Installation(folder, "full"), Installation(folder, "small")
        full.write_lists(["first", "changed"])
        pages = asyncio.run(measure_pages(full, arguments.users, arguments.parcels))
        found = None
        if arguments.minutes:
            found = asyncio.run(measure_readers(small, arguments.readers, arguments.minutes))
    if arguments.json:
        document = {"pages": [asdict(one) for one in pages], "readers": found and asdict(found)}
        print(json.dumps(document, indent=2))
    else:
        show(pages, found)
    is_slowed = found is not None and found.ratio > MAX_RATIO
    return int(is_slowed or not all(page.is_fast for page in pages))


if __name__ == "__main__":
    raise SystemExit(main())
