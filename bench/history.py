"""What keeping past states for years costs a sync, and what a question about one costs.

    python bench/history.py [RECORDS]

In a throw-away database every record changes in one sync, and all of these changes expire in a
later one, which leaves their past states behind. Prints the seconds of both syncs and of deleting
as many changes without leaving anything, the bytes of table and index that a past state takes, and
the microseconds of a lookup of the current state and of one as of a time before the retention.
"""

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import structlog

from archive import taxpayer
from hasat.feed.changes import record_as_of
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Reconcile, Record
from hasat.feed.records import find_record
from hasat.store import Store, open_store
from hasat.testing.database import database_server, throw_away_database

KEPT, DELETED = (Dataset(name, "bench", "taxpayers") for name in ("kept", "deleted"))
LOOKUPS = 2_000


async def sync(store: Store, dataset: Dataset, bodies: list[bytes], retention_days: int) -> float:
    began = time.perf_counter()
    async with Reconcile.begin(store, [dataset]) as work:
        rows = (Record(f"{number:010d}", body) for number, body in enumerate(bodies))
        await work.stage(dataset, rows)
        await work.diff(dataset)
        await work.write(run=None, retention_days=retention_days)
    return time.perf_counter() - began


async def measure(store: Store, count: int) -> None:
    dice = random.Random(1)
    first = [canonical(taxpayer(number, dice)) for number in range(count)]
    second = [canonical(taxpayer(number, dice)) for number in range(count)]
    for dataset in (KEPT, DELETED):
        async with store.connection() as conn:
            table = f"core.{dataset.name} (LIKE feed.record INCLUDING ALL, PRIMARY KEY (key))"
            await conn.execute(f"CREATE TABLE {table}")
        await sync(store, dataset, first, 30)
    before = await store.now()
    changing = await sync(store, KEPT, second, 30)
    await sync(store, DELETED, second, 30)
    third = [*second[:-1], first[-1]]
    nothing = await sync(store, DELETED, third, 30)
    began = time.perf_counter()
    async with store.connection() as conn:
        await conn.execute("ALTER TABLE feed.change DISABLE TRIGGER save_ended_states")
        await conn.execute("DELETE FROM feed.change WHERE dataset = 'deleted'")
        await conn.execute("ALTER TABLE feed.change ENABLE TRIGGER save_ended_states")
    deleting = time.perf_counter() - began
    expiring = await sync(store, KEPT, third, 0)
    print(f"{count:,} changes")
    print(f"  a sync that writes them           {changing:8.2f} s")
    print(f"  a sync of one change              {nothing:8.2f} s")
    print(f"  a sync of one that expires them   {expiring:8.2f} s")
    print(f"  only deleting them                {deleting:8.2f} s")
    ratio = (expiring - nothing) / changing
    print(f"  cost of the history in syncs      {ratio - deleting / changing:8.2f} of writing them")
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT pg_total_relation_size('feed.history')")
        [size] = await cursor.fetchone() or [0]
    print(f"  a past state takes                {size / count:8.0f} bytes")

    keys = [f"{dice.randrange(count):010d}" for _ in range(LOOKUPS)]
    async with store.connection() as conn:
        began = time.perf_counter()
        for key in keys:
            await find_record(conn, KEPT, key)
        now = time.perf_counter() - began
        began = time.perf_counter()
        for key in keys:
            found = await record_as_of(conn, KEPT, key, before)
            assert canonical(found.body) == first[int(key)]
        then = time.perf_counter() - began
    print(f"  a lookup                          {now / LOOKUPS * 1e6:8.0f} µs")
    print(f"  one before the retention          {then / LOOKUPS * 1e6:8.0f} µs, {then / now:.1f} x")


async def main(count: int) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory() as folder:
        async with (
            database_server() as server,
            throw_away_database(server) as database,
            open_store(database.settings(Path(folder))) as store,
        ):
            await measure(store, count)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))
