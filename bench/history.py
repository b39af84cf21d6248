"""What keeping past states for years costs a sync, and what a question about one costs.

    python bench/history.py [RECORDS] [--json]

In a throw-away database every record changes in one sync, and all of these changes expire in a
later one, which leaves their past states behind. Prints the seconds of both syncs and of deleting
as many changes without leaving anything, the bytes of table and index that a past state takes, and
the microseconds of a lookup of the current state and of one as of a time before the retention.
"""

import argparse
import asyncio
import json
import random
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


async def measure(store: Store, count: int) -> dict[str, float]:
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
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT pg_total_relation_size('feed.history')")
        [size] = await cursor.fetchone() or [0]

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
    return {
        "changes": count,
        "changing_seconds": changing,
        "unchanged_seconds": nothing,
        "expiring_seconds": expiring,
        "deleting_seconds": deleting,
        "cost": (expiring - nothing - deleting) / changing,
        "bytes": size / count,
        "lookup_us": now / LOOKUPS * 1e6,
        "past_lookup_us": then / LOOKUPS * 1e6,
        "lookup_ratio": then / now,
    }


def show(found: dict[str, float]) -> None:
    print(f"{found['changes']:,} changes")
    print(f"  a sync that writes them           {found['changing_seconds']:8.2f} s")
    print(f"  a sync of one change              {found['unchanged_seconds']:8.2f} s")
    print(f"  a sync of one that expires them   {found['expiring_seconds']:8.2f} s")
    print(f"  only deleting them                {found['deleting_seconds']:8.2f} s")
    print(f"  cost of the history in syncs      {found['cost']:8.2f} of writing them")
    print(f"  a past state takes                {found['bytes']:8.0f} bytes")
    print(f"  a lookup                          {found['lookup_us']:8.0f} µs")
    print(
        f"  one before the retention          {found['past_lookup_us']:8.0f} µs, "
        f"{found['lookup_ratio']:.1f} x"
    )


async def run(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            database_server() as server,
            throw_away_database(server) as database,
            open_store(database.settings(Path(folder))) as store,
        ):
            return await measure(store, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", type=int, nargs="?", default=200_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    found = asyncio.run(run(arguments.records))
    print(json.dumps(found, indent=2)) if arguments.json else show(found)


if __name__ == "__main__":
    main()
