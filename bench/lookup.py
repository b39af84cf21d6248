"""Measure lookups over HTTP next to a bare psycopg loop on one connection.

200,000 taxpayers, `hasat serve` as users run it (its access log too), 8 connections from a load
generator in a process of its own, the bare loop in another. Every round measures everything once,
in turn, so that a slow moment of the machine affects all of them; ratios are those of the medians.

    python bench/lookup.py                      # or --json
    python bench/lookup.py --rounds 9 --seconds 5

- `lookup_ratio`: single lookups a second of one server process over those of the bare loop.
- `not_modified_ratio`: the same with the ETag of the record, answered with 304.
- `key_ratio`: single lookups with an API key and a rate limit.
- `check_ratio`: answers to "e-Fatura or e-Arşiv?" (both datasets) over the bare loop's lookups.
- `batch_ratio`: time of a batch of 100 over that of the bare query of the same 100 keys.
- `search_ratio`: p95 of searches on one connection, with counting, sorting and the records as JSON,
  over the p95 of the bare queries that their index answers (`search.py` has 1.5 million taxpayers).
- `workers_scaling`: lookups a second of as many server processes as there are cores, over one.

The rate of a server includes waiting for the load generator and PostgreSQL, which need processors
too. `server_ms` is the processor time of the server processes for a request: its reciprocal is
what one process could serve on a core of its own. `processors_busy` is the share of the processors
that all programs used, those of the benchmark included.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]
import structlog

from hasat.console.runtime import open_migrated_store
from hasat.http.listener import bind
from hasat.settings import Settings, load_settings
from hasat.sources.gib.search import build_search_index
from hasat.sources.gib.simulator.lists import Publisher
from hasat.store import Store
from search import Text, compare, texts_for

HERE = Path(__file__).parent
CONNECTIONS, BATCH, KEYS = 8, 100, 20_000
DATASET = "einvoice"


@dataclass(frozen=True)
class Sample:
    """One measurement: requests a second, and processor time of a request in milliseconds."""

    rate: float
    own_ms: float
    """Of the server processes; of the bare loop its own."""
    load_busy: float = 0.0
    """The share of a core that the load generator used."""


class Server:
    """`hasat serve` with some processes."""

    def __init__(self, home: Path, workers: int, **settings: str) -> None:
        with bind("127.0.0.1", 0) as free:
            self.port: int = free.getsockname()[1]
        self._environ = os.environ | {
            "HASAT_HOME": str(home),
            "HASAT_PORT": str(self.port),
            **({"HASAT_SERVE_WORKERS": str(workers)} if workers > 1 else {}),
            **settings,
        }
        self._log = (home / f"serve-{self.port}.log").open("wb")
        command = [sys.executable, "-m", "hasat", "serve"]
        self._process = subprocess.Popen(command, env=self._environ, stderr=self._log)

    def wait_ready(self) -> None:
        while True:
            if self._process.poll() is not None:
                raise SystemExit(f"The server stopped; see {self._log.name}.")
            with contextlib.suppress(OSError):
                self.get("/readyz", {})
                return
            time.sleep(0.2)

    def get(self, path: str, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read()
            if response.status != HTTPStatus.OK:
                raise OSError(f"{path} returned {response.status}.")
            return body, {name.lower(): value for name, value in response.getheaders()}

    def processor_seconds(self) -> float:
        own = psutil.Process(self._process.pid)
        family = [own, *own.children(recursive=True)]
        family = [one for one in family if "postgres" not in one.name()]
        return sum(sum(one.cpu_times()[:2]) for one in family)

    def load(self, requests: Sequence[str], seconds: float, status: str) -> Sample:
        """Send the requests and check that every one has this status."""
        before = self.processor_seconds()
        found = _run(
            "_load.py",
            port=self.port,
            connections=CONNECTIONS,
            seconds=seconds,
            requests=list(requests),
        )
        spent = self.processor_seconds() - before
        statuses = found["statuses"]
        if set(statuses) != {status}:
            raise SystemExit(f"The server responded with {statuses}, expected {status}.")
        done = statuses[status]
        busy = found["processor_seconds"] / found["seconds"]
        return Sample(done / found["seconds"], 1000 * spent / done, busy)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


def _run(script: str, **wanted: Any) -> dict[str, Any]:
    command = [sys.executable, str(HERE / script)]
    done = subprocess.run(
        command, input=json.dumps(wanted).encode(), stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def bare(url: str, keys: list[list[str]], seconds: float) -> Sample:
    found = _run("_bare_lookup.py", url=url, table=DATASET, seconds=seconds, keys=keys)
    done = found["done"]
    return Sample(done / found["seconds"], 1000 * found["processor_seconds"] / done)


def request_text(method: str, path: str, body: str = "", **headers: str) -> str:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", body])


def prepare(home: Path, users: int) -> Settings:
    """Fill an installation with taxpayers, unless it is filled."""
    settings = load_settings(environ={"HASAT_HOME": str(home)})
    if not (home / "filled").exists():
        lists = home.parent / f"lists-{users}"
        lists.mkdir(exist_ok=True)
        paths = Publisher(users).write(lists)
        command = [sys.executable, "-m", "hasat", "gib", "sync"]
        command += ["--pk", str(paths["PK"]), "--gb", str(paths["GB"])]
        environ = os.environ | {"HASAT_HOME": str(home), "HASAT_LOG_LEVEL": "error"}
        subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
        (home / "filled").touch()
    return settings


async def some_texts(store: Store, keys: Sequence[str]) -> list[Text]:
    """Build the search index and return texts that find some of the taxpayers."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT key, body ->> 'title', split_part(body #>> '{aliases,0,alias}', '@', 2)"
            " FROM core.einvoice WHERE key = ANY (%s)",
            [list(keys)],
        )
        rows = [row for row in await cursor.fetchall() if len(row[1].split()) > 2 and row[2]]

    async def ignore(_done: float, _total: float | None, _note: str) -> None:
        return

    await build_search_index(store, ignore)
    dice = random.Random(1)
    return [text for row in rows for text in texts_for(*row, dice)]


async def some_keys(store: Store) -> list[str]:
    async with store.connection() as conn:
        await conn.execute("ANALYZE core.einvoice")
        cursor = await conn.execute("SELECT key FROM core.einvoice ORDER BY key")
        keys = [row[0] for row in await cursor.fetchall()]
    return random.Random(1).sample(keys, min(KEYS, len(keys)))


def create_key(home: Path) -> str:
    command = [sys.executable, "-m", "hasat", "keys", "create", "bench", "--json"]
    command += ["--per-minute", "1000000"]
    environ = os.environ | {"HASAT_HOME": str(home)}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    token: str = json.loads(done.stdout)["key"]
    return token


@contextmanager
def servers(home: Path, workers: int) -> Iterator[tuple[Server, Server, Server]]:
    """Run a server, one that requires keys, and one with a process for each core."""
    found = (
        Server(home, 1),
        Server(home, 1, HASAT_AUTHENTICATION_ENABLED="true"),
        Server(home, workers),
    )
    try:
        for one in found:
            one.wait_ready()
        yield found
    finally:
        for one in found:
            one.stop()


def measure(
    url: str,
    home: Path,
    keys: list[str],
    texts: list[Text],
    rounds: int,
    seconds: float,
    workers: int,
) -> tuple[dict[str, list[Sample]], dict[str, Any]]:
    token = create_key(home)
    path = f"/api/v1/{DATASET}"
    batches = [keys[start : start + BATCH] for start in range(0, 50 * BATCH, BATCH)]
    found: dict[str, list[Sample]] = {}
    with servers(home, workers) as (plain, keyed, many):
        lookups = [request_text("GET", f"{path}/{key}") for key in keys]
        with_key = [
            request_text("GET", f"{path}/{key}", Authorization=f"Bearer {token}") for key in keys
        ]
        known = []
        for key in keys[:500]:
            _, headers = plain.get(f"{path}/{key}", {})
            known.append(request_text("GET", f"{path}/{key}", If_None_Match=headers["etag"]))
        posted = [
            request_text("POST", f"{path}/batch", json.dumps({"identifiers": batch}))
            for batch in batches
        ]
        checks = [request_text("GET", f"/api/v1/check/{key}") for key in keys]
        tasks = {
            "bare lookup": lambda: bare(url, [[key] for key in keys], seconds),
            "lookup": lambda: plain.load(lookups, seconds, "200"),
            "not modified": lambda: plain.load(known, seconds, "304"),
            "check": lambda: plain.load(checks, seconds, "200"),
            "lookup with a key": lambda: keyed.load(with_key, seconds, "200"),
            "bare batch": lambda: bare(url, batches, seconds),
            "batch": lambda: plain.load(posted, seconds, "200"),
            "lookup, one process per core": lambda: many.load(lookups, seconds, "200"),
        }
        for number in range(rounds + 1):
            for name, task in tasks.items():
                sample = task()
                # The first round is a warm-up.
                if number:
                    found.setdefault(name, []).append(sample)
        searches = compare(url, f"http://127.0.0.1:{plain.port}", texts)
    return found, searches


def summarize(found: dict[str, list[Sample]], searches: dict[str, Any]) -> dict[str, Any]:
    rate = {name: median(one.rate for one in samples) for name, samples in found.items()}
    shown = {
        name: {
            "rate": round(rate[name]),
            "lowest_rate": round(min(one.rate for one in samples)),
            "highest_rate": round(max(one.rate for one in samples)),
            "server_ms" if "bare" not in name else "bare_ms": round(
                median(one.own_ms for one in samples), 3
            ),
            **(
                {}
                if "bare" in name
                else {"load_busy": round(median(one.load_busy for one in samples), 2)}
            ),
        }
        for name, samples in found.items()
    }
    return {
        "lookup_ratio": round(rate["lookup"] / rate["bare lookup"], 3),
        "not_modified_ratio": round(rate["not modified"] / rate["bare lookup"], 3),
        "key_ratio": round(rate["lookup with a key"] / rate["bare lookup"], 3),
        "check_ratio": round(rate["check"] / rate["bare lookup"], 3),
        "batch_ratio": round(rate["bare batch"] / rate["batch"], 3),
        "search_ratio": searches["search_ratio"],
        "workers_scaling": round(rate["lookup, one process per core"] / rate["lookup"], 3),
        "searches": searches,
        "measured": shown,
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--texts", type=int, default=40, help="taxpayers to search for")
    parser.add_argument("--folder", type=Path, help="keeps the filled installation there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        home = folder / f"home-{options.users}"
        home.mkdir(parents=True, exist_ok=True)
        settings = prepare(home, options.users)
        async with open_migrated_store(settings) as store:
            keys = await some_keys(store)
            texts = await some_texts(store, keys[: options.texts])
            psutil.cpu_percent()
            found = await asyncio.to_thread(
                measure,
                store.url,
                home,
                keys,
                texts,
                options.rounds,
                options.seconds,
                options.workers,
            )
            busy = round(psutil.cpu_percent() / 100, 2)
    result = summarize(*found) | {"processors_busy": busy}
    if options.json:
        print(json.dumps(result))
        return
    result.pop("searches")
    for name, one in result.pop("measured").items():
        cost = one.get("server_ms", one.get("bare_ms"))
        busy = f"   load generator {one['load_busy']:.0%} of a core" if "load_busy" in one else ""
        spread = f"{one['lowest_rate']:,} to {one['highest_rate']:,}"
        print(f"{name:30} {one['rate']:>7,}/s ({spread})   {cost} ms of its processor{busy}")
    for name, value in result.items():
        print(f"{name:30} {value}")


if __name__ == "__main__":
    asyncio.run(main())
