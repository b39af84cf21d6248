"""What archiving a dataset costs, against PostgreSQL's own COPY through gzip as the floor.

    python bench/archive.py [RECORDS] [--json]

Fills a throw-away database with taxpayers as the lists have them, then measures, in one run: COPY
of the bodies alone through gzip (the floor: one form, nothing checked), and all three forms with
digest, SHA-256 and Parquet. Prints seconds, bytes and the ratio.
"""

import argparse
import asyncio
import json
import random
import resource
import shutil
import tempfile
import time
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import structlog

from hasat.feed.archive import write_archives
from hasat.feed.encoding import canonical, pack
from hasat.feed.reconcile import Reconcile
from hasat.sources.gib.datasets import EINVOICE
from hasat.sources.gib.simulator.taxpayers import ENDINGS, FIRST, TRADES
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import database_server, throw_away_database

GIB = MigrationSet("gib", files("hasat.sources.gib") / "migrations")
CHUNK = 5_000
_SELF, _CHILDREN = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


def taxpayer(number: int, dice: random.Random) -> dict[str, Any]:
    def moment() -> str:
        return (
            f"20{dice.randrange(14, 26)}-{dice.randrange(1, 13):02d}-{dice.randrange(1, 29):02d}"
            f"T{dice.randrange(24):02d}:{dice.randrange(60):02d}:{dice.randrange(60):02d}"
        )

    first = dice.choice(FIRST)
    return {
        "identifier": f"{number:010d}",
        "title": f"{first} {dice.choice(TRADES)} {dice.choice(TRADES)} {dice.choice(ENDINGS)}",
        "accountType": dice.choice(["GIBPORTAL", "ENTEGRASYON", "OZELENTEGRASYON"]),
        "type": "OZEL",
        "firstCreationTime": moment(),
        "aliases": [
            {
                "alias": f"urn:mail:default{box.lower()}@{number}.com.tr",
                "type": box,
                "creationTime": moment(),
            }
            for box in ("GB", "PK")
        ],
    }


async def fill(store: Store, count: int) -> None:
    dice = random.Random(1)
    numbers = list(range(count))
    # The lists are not sorted, and neither is what they leave in the table.
    dice.shuffle(numbers)

    async with Reconcile.begin(store, [EINVOICE]) as work:
        async with work.loading(EINVOICE) as write:
            for at in range(0, count, CHUNK):
                batch = numbers[at : at + CHUNK]
                await write(pack((f"{n:010d}", canonical(taxpayer(n, dice))) for n in batch))
        await work.write(run=None, retention_days=30)


async def floor(store: Store) -> tuple[float, int]:
    """COPY of the bodies through gzip: seconds and bytes."""
    began = time.perf_counter()
    zipped = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    size = 0
    query = "COPY (SELECT body FROM core.einvoice) TO STDOUT"
    async with (
        store.connection() as conn,
        conn.cursor() as cursor,
        cursor.copy(query) as copy,
    ):
        waiting: list[bytes] = []
        async for row in copy:
            waiting.append(bytes(row))
            if len(waiting) == CHUNK:
                size += len(await asyncio.to_thread(zipped.compress, b"".join(waiting)))
                waiting = []
        size += len(zipped.compress(b"".join(waiting))) + len(zipped.flush())
    return time.perf_counter() - began, size


def cpu() -> float:
    """Processor seconds of this process and those it waited for, without PostgreSQL's."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (_SELF, _CHILDREN))


async def measure(count: int) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="hasat-bench-"))
    try:
        async with database_server() as url, throw_away_database(url, [GIB]) as database:
            settings = database.settings(home)
            async with open_store(settings, [GIB]) as store:
                await fill(store, count)
                before = cpu()
                least, size = await floor(store)
                between = cpu()
                began = time.perf_counter()
                written = await write_archives(store, settings, EINVOICE)
                seconds = time.perf_counter() - began
                spent = cpu() - between
    finally:
        shutil.rmtree(home)
    return {
        "records": count,
        "copy": {"seconds": least, "processor": between - before, "bytes": size},
        "archives": {
            "seconds": seconds,
            "processor": spent,
            "bytes": {one.format: one.size for one in written},
        },
        "ratio": seconds / least,
        "processor_ratio": spent / (between - before),
    }


def show(result: dict[str, Any]) -> None:
    copy, archives = result["copy"], result["archives"]
    sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in archives["bytes"].items())
    print(f"{result['records']:,} records; seconds by the clock, and of this side's processor")
    for what, one, described in (
        ("COPY | gzip -6, one form:", copy, f"{copy['bytes'] / 1e6:.1f} MB"),
        ("three forms, verified:", archives, sizes),
    ):
        print(f"{what:25} {one['seconds']:7.1f} s {one['processor']:6.1f} s   {described}")
    print(f"ratio: {result['ratio']:.2f} ({result['processor_ratio']:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    result = asyncio.run(measure(arguments.records))
    print(json.dumps(result, indent=2)) if arguments.json else show(result)


if __name__ == "__main__":
    main()
