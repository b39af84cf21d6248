"""Searches of taxpayers over HTTP next to bare index queries for the same texts.

    python bench/search.py [--taxpayers 1500000] [--texts 40] [--json]

Fills a throw-away database, builds the search index with the job's own code and starts
`hasat serve`. Each text is searched once over HTTP and once with the bare query that its index
answers, in turn and on one connection each: words with LIKE, misspelt titles with pg_trgm's word
similarity, domains with containment. `search_ratio` is the p95 over HTTP, with counting, sorting
and the records as JSON, over the p95 of the bare queries; `found` is the share of misspelt titles
that are among the first three results.
"""

import argparse
import asyncio
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
from importlib.resources import files
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx2
import psycopg
import structlog

from hasat.feed.encoding import canonical, pack
from hasat.feed.reconcile import Reconcile
from hasat.http.listener import bind
from hasat.sources.gib.datasets import DATASETS, EINVOICE
from hasat.sources.gib.search import build_search_index
from hasat.sources.gib.simulator.taxpayers import ENDINGS, FIRST, TRADES
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import database_server, throw_away_database

GIB = MigrationSet("gib", files("hasat.sources.gib") / "migrations")
CHUNK = 5_000
SYLLABLES = (
    "KA", "RA", "DE", "NİZ", "IŞIK", "ÇE", "LİK", "ÖZ", "GÜR", "YA", "VUZ", "GÜ", "NEŞ", "BER",
    "KE", "ŞA", "HİN", "TU", "NA", "EL", "MA", "KIR", "MIZ", "TO", "PRAK", "SEL", "ÇUK", "ER",
)  # fmt: skip
_LIKE = "SELECT identifier FROM gib.search_einvoice WHERE {} ORDER BY line LIMIT 20"
_SIMILAR = (
    "SELECT identifier FROM gib.search_einvoice WHERE line %%> %s"
    " ORDER BY word_similarity(%s, line) DESC LIMIT 20"
)
_DOMAIN = "SELECT identifier FROM gib.search_einvoice WHERE aliases @> %s::jsonb LIMIT 20"


@dataclass(frozen=True)
class Text:
    """A text to search for, who is looked for, and the bare query for it."""

    kind: str
    text: str
    identifier: str
    query: str
    values: tuple[Any, ...]


def title(number: int) -> str:
    """Return a title: an invented name, as most have, then trades and the legal form."""
    dice = random.Random(number)
    name = "".join(dice.choices(SYLLABLES, k=dice.choice([2, 3, 4])))
    first = f"{dice.choice(FIRST)} " if dice.random() < 0.3 else ""
    trades = " ".join(dice.sample(TRADES, dice.choice([1, 2])))
    return f"{first}{name} {trades} {dice.choice(ENDINGS)}"


def _body(number: int) -> dict[str, Any]:
    at = "2024-06-15T00:00:00"
    alias = {"alias": f"urn:mail:pk@firma{number}.com.tr", "type": "PK", "creationTime": at}
    return {
        "identifier": f"{number:010d}",
        "title": title(number),
        "accountType": "GIBPORTAL",
        "type": "OZEL",
        "firstCreationTime": at,
        "aliases": [alias],
    }


async def fill(store: Store, count: int) -> None:
    """Load the taxpayers as a first sync does, and build the index."""
    async with Reconcile.begin(store, DATASETS) as work:
        async with work.loading(EINVOICE) as write:
            for at in range(0, count, CHUNK):
                numbers = range(at, min(at + CHUNK, count))
                await write(pack((f"{n:010d}", canonical(_body(n))) for n in numbers))
        await work.write(run=None, retention_days=30)

    async def ignore(_done: float, _total: float | None, _note: str) -> None:
        return

    await build_search_index(store, ignore)


def texts(count: int, taxpayers: int, dice: random.Random) -> Iterator[Text]:
    """Yield texts of every kind in turn."""
    for _ in range(count):
        number = dice.randrange(taxpayers)
        yield from texts_for(f"{number:010d}", title(number), f"firma{number}.com.tr", dice)


def texts_for(identifier: str, title: str, domain: str, dice: random.Random) -> Iterator[Text]:
    """Yield a text of every kind for one taxpayer."""
    words = title.split()
    name = sorted(words[:3], key=len)[-2:]
    dice.shuffle(name)
    likes = [f"%{word.translate(_TO_ASCII).lower()}%" for word in name]
    yield Text("words", " ".join(name), identifier, *_like(likes))
    short = f"{' '.join(name)} LTD. ŞTİ."
    written_out = [*likes, "%limited%", "%sirketi%"]
    yield Text("abbreviated", short, identifier, *_like(written_out))
    for kind, some in (("misspelt words", words[:3]), ("misspelt title", words)):
        wrong = misspell(some, dice)
        bare = wrong.translate(_TO_ASCII).lower()
        yield Text(kind, wrong, identifier, _SIMILAR, (bare, bare))
    yield Text("domain", f"@{domain}", identifier, _DOMAIN, (json.dumps([f"@{domain}"]),))


def _like(patterns: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the bare query for words; an array of patterns would not use the index."""
    return _LIKE.format(" AND ".join(["line LIKE %s"] * len(patterns))), tuple(patterns)


_TO_ASCII = str.maketrans("İIŞĞÜÖÇışğüöç", "iisguocisguoc")


def misspell(words: Sequence[str], dice: random.Random) -> str:
    """Omit, double, change or swap a letter of the longest word."""
    wrong = list(words)
    place = max(range(len(wrong)), key=lambda n: len(wrong[n]))
    word = wrong[place]
    at = dice.randrange(1, len(word) - 1)
    wrong[place] = dice.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + dice.choice("AEKLMNRST") + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        ]
    )
    return " ".join(wrong)


@contextmanager
def _serving(url: str, home: Path) -> Iterator[str]:
    """Start `hasat serve` on a free port and wait until it is ready."""
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    environ = {**os.environ, "HASAT_DATABASE_URL": url, "HASAT_HOME": str(home)}
    command = [sys.executable, "-m", "hasat", "--set", f"serve.port={port}", "serve"]
    server = subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and server.poll() is None:
            try:
                if httpx2.get(f"{address}/readyz").status_code == HTTPStatus.OK:
                    break
            except httpx2.TransportError:
                time.sleep(0.2)
        if server.poll() is not None:
            raise SystemExit("The server stopped.")
        yield address
    finally:
        server.terminate()
        server.wait()


def _p95(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=20)[-1]


def compare(url: str, address: str, wanted: Sequence[Text]) -> dict[str, Any]:
    """Search every text both ways, in turn, and return the ratios."""
    ours: dict[str, list[float]] = {}
    bare: dict[str, list[float]] = {}
    found: list[bool] = []
    with psycopg.connect(url, autocommit=True) as conn, httpx2.Client(timeout=120) as client:
        for number, one in enumerate(wanted):
            began = time.perf_counter()
            response = client.get(f"{address}/api/v1/einvoice", params={"search": one.text})
            between = time.perf_counter()
            conn.execute(one.query, one.values, prepare=False).fetchall()
            ended = time.perf_counter()
            items = response.raise_for_status().json()["items"]
            if number < 2 * len({text.kind for text in wanted}):
                continue  # The first of each kind fill the caches.
            ours.setdefault(one.kind, []).append(between - began)
            bare.setdefault(one.kind, []).append(ended - between)
            if one.kind.startswith("misspelt"):
                found.append(one.identifier in [item["identifier"] for item in items[:3]])
    all_ours, all_bare = list(chain(*ours.values())), list(chain(*bare.values()))
    return {
        "search_ratio": round(_p95(all_ours) / _p95(all_bare), 2),
        "p95_ms": round(1000 * _p95(all_ours), 1),
        "bare_p95_ms": round(1000 * _p95(all_bare), 1),
        "found": round(sum(found) / len(found), 3),
        "median_ms": {
            kind: [round(1000 * median(one), 1) for one in (ours[kind], bare[kind])]
            for kind in ours
        },
    }


async def measure_search(taxpayers: int, count: int) -> dict[str, Any]:
    """Fill a throw-away database and compare."""
    async with database_server() as url, throw_away_database(url, [GIB]) as database:
        with tempfile.TemporaryDirectory(prefix="hasat-bench-") as home:
            async with open_store(database.settings(Path(home)), [GIB]) as store:
                await fill(store, taxpayers)
            wanted = list(texts(count, taxpayers, random.Random(1)))
            with _serving(database.url, Path(home)) as address:
                result = await asyncio.to_thread(compare, database.url, address, wanted)
    return {"taxpayers": taxpayers, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--taxpayers", type=int, default=1_500_000)
    parser.add_argument("--texts", type=int, default=40, help="texts of each kind")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    result = asyncio.run(measure_search(arguments.taxpayers, arguments.texts))
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:15} {value}")


if __name__ == "__main__":
    main()
