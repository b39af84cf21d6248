"""How long a page of 1,000 changes takes in a long feed, and a commit to reach a waiting follower.

Each is compared with the least it could cost: reading the same rows with a bare SELECT, and a bare
NOTIFY from one connection to another. Rounds take turns, so the ratios hold on any machine. Run
`python bench/feed.py`, with `--changes 10000000` for the length that the promise is about, or with
`--json`.
"""

import argparse
import asyncio
import http.client
import json
import random
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from uuid import UUID

import structlog
from psycopg import AsyncConnection

from hasat.api.app import create_app
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Reconcile, Record
from hasat.http.listener import Listener, bind
from hasat.jobs import Catalogue
from hasat.source import Source
from hasat.store import Store, open_store
from hasat.store.store import connect
from hasat.testing.database import database_server, throw_away_database

BENCH = Dataset("bench", "bench", "changes to read", flat=True)
PAGE = 1000

_FILL = """
INSERT INTO feed.change (dataset, seq, version, kind, key, body, before, changed_at)
SELECT 'bench', n, 1 + n / 437, 1 + n %% 3, (n * 7919 %% 1500000)::text,
       CASE WHEN n %% 3 < 2 THEN body END, CASE WHEN n %% 3 > 0 THEN body END,
       timestamptz '2026-01-01' + n / 437 * interval '6 hours'
  FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n,
       LATERAL jsonb_build_object(
           'identifier', (n * 7919 %% 1500000)::text, 'type', 'OZEL',
           'title', 'ÖRNEK SANAYİ VE TİCARET LİMİTED ŞİRKETİ ' || md5(n::text),
           'accountType', 'OZELENTEGRASYON', 'firstCreationTime', '2019-05-01T10:00:00',
           'aliases', jsonb_build_array(
               jsonb_build_object('alias', 'urn:mail:defaultpk@' || md5(n::text) || '.com.tr',
                                  'type', 'PK', 'creationTime', '2019-05-01T10:00:00'),
               jsonb_build_object('alias', 'urn:mail:defaultgb@' || md5(n::text) || '.com.tr',
                                  'type', 'GB', 'creationTime', '2019-05-01T10:00:00'))) AS body
"""
_AT_ONCE = 250_000


async def commit(store: Store, number: int) -> None:
    """A run that changes one record."""
    async with Reconcile.begin(store, [BENCH]) as work:
        await work.stage(BENCH, [Record("one", canonical({"n": number}))])
        await work.diff(BENCH)
        await work.write(run=None, retention_days=365)


async def fill(store: Store, changes: int) -> UUID:
    """Write a number of changes and return the epoch."""
    async with store.connection() as conn:
        await conn.execute(
            "CREATE TABLE core.bench (LIKE feed.record INCLUDING ALL, PRIMARY KEY (key))"
        )
    await commit(store, 0)
    for first in range(1, changes + 1, _AT_ONCE):
        async with store.connection() as conn:
            last = min(first + _AT_ONCE - 1, changes)
            await conn.execute(_FILL, {"first": first, "last": last})
    async with store.connection() as conn:
        cursor = await conn.execute("UPDATE feed.head SET seq = %s RETURNING epoch", [changes])
        row = await cursor.fetchone()
    assert row is not None
    async with await connect(store.url) as conn:
        await conn.execute("VACUUM (ANALYZE) feed.change")
    epoch: UUID = row[0]
    return epoch


class Server:
    """Asks a port from another thread, as a follower elsewhere would."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, path: str) -> tuple[bytes, float]:
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body, time.perf_counter()


async def pages(store: Store, port: int, epoch: UUID, changes: int, rounds: int) -> dict[str, Any]:
    dice = random.Random(1)
    server = Server(port)
    over_http, bare = [], []
    async with await connect(store.url) as conn:
        for number in range(rounds + 5):
            after = dice.randrange(max(changes - PAGE, 1))
            path = f"/api/v1/bench/changes?limit={PAGE}&after={Cursor('bench', epoch, after)}"
            began = time.perf_counter()
            body, ended = await asyncio.to_thread(server.get, path)
            took = ended - began
            began = time.perf_counter()
            cursor = await conn.execute(
                "SELECT seq, kind, key, body::text, changed_at FROM feed.change"
                " WHERE dataset = 'bench' AND seq > %s ORDER BY seq LIMIT %s",
                [after, PAGE],
            )
            await cursor.fetchall()
            if number < 5:
                continue  # the first ones open connections
            bare.append(time.perf_counter() - began)
            over_http.append(took)
            if number == 5:
                assert len(json.loads(body)["changes"]) == min(PAGE, changes)
    return {"page of 1,000 over HTTP": over_http, "the same rows by a bare SELECT": bare}


async def wake_ups(store: Store, port: int, rounds: int) -> dict[str, Any]:
    server, probe = Server(port), Server(port)
    waited, bare = [], []
    async with await connect(store.url) as listening, await connect(store.url) as sending:
        await listening.execute("LISTEN bench")
        for number in range(1, rounds + 1):
            body, _ = await asyncio.to_thread(probe.get, "/api/v1/bench/digest")
            path = f"/api/v1/bench/changes?wait=60&after={json.loads(body)['cursor']}"
            waiting = asyncio.create_task(asyncio.to_thread(server.get, path))
            await asyncio.sleep(0.3)  # it must be waiting, not asking
            await commit(store, number)
            committed = time.perf_counter()
            body, heard = await waiting
            assert json.loads(body)["changes"]
            waited.append(heard - committed)
            bare.append(await _notified(listening, sending))
    return {"commit to a waiting follower": waited, "a bare NOTIFY": bare}


async def _notified(listening: AsyncConnection[Any], sending: AsyncConnection[Any]) -> float:
    began = time.perf_counter()
    await sending.execute("NOTIFY bench")
    async for _ in listening.notifies(stop_after=1):
        pass
    return time.perf_counter() - began


async def measure(changes: int, rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    async with database_server("embedded") as url, throw_away_database(url) as database:
        settings = database.settings(folder)
        quiet = settings.serve.model_copy(update={"requests_per_minute": 0})
        settings = settings.model_copy(update={"serve": quiet})
        async with open_store(settings) as store:
            epoch = await fill(store, changes)
            source = Source("bench", "bench", datasets=(BENCH,))
            app = create_app(settings, store, Catalogue.of([], settings), [source])
            listening = bind("127.0.0.1", 0)
            listener = Listener(app, listening, on_drain=app.state.notifier.close)
            await listener.start()
            port = listening.getsockname()[1]
            taken = await pages(store, port, epoch, changes, rounds)
            taken |= await wake_ups(store, port, max(rounds // 10, 5))
            listener.drain()
            await listener.wait_closed()
    return {
        name: {"median": median(values), "p99": quantiles(values, n=100, method="inclusive")[98]}
        for name, values in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--changes", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory() as name:
        result = asyncio.run(measure(arguments.changes, arguments.rounds, Path(name)))
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{arguments.changes:,} changes, {arguments.rounds} rounds")
    names = list(result)
    for what, baseline in zip(names[::2], names[1::2], strict=True):
        for one in (what, baseline):
            figures = result[one]
            print(
                f"{one:32} median {figures['median'] * 1000:7.1f} ms"
                f"   p99 {figures['p99'] * 1000:7.1f} ms"
            )
        print(f"{'':32} ratio  {result[what]['median'] / result[baseline]['median']:7.2f} x")


if __name__ == "__main__":
    main()
