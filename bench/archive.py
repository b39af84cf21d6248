"""What archiving a dataset costs, against PostgreSQL's own COPY through gzip as the floor.

    python bench/archive.py [RECORDS]

Fills a throw-away database with taxpayers as the lists have them, then measures, in one run: COPY
of the bodies alone through gzip (the floor: one form, nothing checked), and all three forms with
digest, SHA-256 and Parquet. Prints seconds, bytes and the ratio.
"""

import asyncio
import random
import resource
import shutil
import sys
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


async def main(count: int) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    home = Path(tempfile.mkdtemp(prefix="hasat-bench-"))
    try:
        async with database_server() as url, throw_away_database(url, [GIB]) as database:
            settings = database.settings(home)
            async with open_store(settings, [GIB]) as store:
                await fill(store, count)
                print(f"{count:,} records; seconds by the clock, and of this side's processor")
                before = cpu()
                least, size = await floor(store)
                between = cpu()
                print(
                    f"COPY | gzip -6, one form: {least:7.1f} s {between - before:6.1f} s"
                    f"   {size / 1e6:.1f} MB"
                )
                began = time.perf_counter()
                written = await write_archives(store, settings, EINVOICE)
                seconds = time.perf_counter() - began
                sizes = {one.format: one.size for one in written}
                described = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items())
                spent = cpu() - between
                print(f"three forms, verified:    {seconds:7.1f} s {spent:6.1f} s   {described}")
                print(f"ratio: {seconds / least:.2f} ({spent / (between - before):.2f})")
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
