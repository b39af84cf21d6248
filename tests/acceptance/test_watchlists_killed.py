"""A watch list of 500 keys while syncs go on and processes are killed: each change once, in order.

This file is also the program that the test starts. HASAT_TEST_KILLS makes the campaign longer.
"""

import asyncio
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from hasat.deliver.dispatcher import Dispatcher
from hasat.deliver.watchlists.lists import LOCAL, WatchListSpec, create_watchlist, get_watchlist
from hasat.logs import configure_logging
from hasat.settings import load_settings
from hasat.store import Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import TOYS, head_of, make_table, mirror, run
from support.mail_server import ACCEPTED, mail_server
from support.receivers import Behave, Received, answer, receiving, reset, slow

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("HASAT_TEST_KILLS", "4"))
PATIENCE_SECONDS = 180.0
RECORDS = 2000
WATCHED = [f"k{n}" for n in range(0, RECORDS, 4)]


async def deliver() -> None:
    settings = load_settings()
    configure_logging(settings)
    async with open_store(settings) as store:
        deliverer = Dispatcher(
            store, settings, datasets=[TOYS], first_pause_seconds=0.02, lease_seconds=0.7
        )
        async with deliverer.running():
            await asyncio.Event().wait()


async def sync(seed: int) -> None:
    dice = random.Random(seed)
    async with open_store(load_settings()) as store:
        while True:
            state = await mirror(store)
            for _ in range(dice.randrange(1, 60)):
                key = f"k{dice.randrange(RECORDS)}"
                if dice.random() < 0.2:
                    state.pop(key, None)
                else:
                    state[key] = {"v": dice.randrange(1 << 30)}
            await run(store, state)


class Processes:
    """Processes of this program; none outlives the test."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self._environ = os.environ | environ
        self._log = log
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {"deliver": [], "sync": []}

    def start(self, what: str, seed: int = 0) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, __file__, what, str(seed)]
            process = subprocess.Popen(command, env=self._environ, stdout=log, stderr=log)
        self._running[what].append(process)

    def kill_one(self, what: str, dice: random.Random) -> None:
        victim = self._running[what].pop(dice.randrange(len(self._running[what])))
        assert victim.poll() is None, self._log.read_text()
        victim.kill()
        victim.wait(30)

    def end(self) -> None:
        for process in (one for some in self._running.values() for one in some):
            process.kill()
            process.wait(30)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - others make it true
            await asyncio.sleep(0.05)


async def test_each_change_arrives_once_per_channel_and_in_order(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    await make_table(store)
    await run(store, {f"k{n}": {"v": 0} for n in range(RECORDS)})
    faults: Counter[str] = Counter()
    accepted: list[Received] = []

    def has_fault(message_id: str) -> bool:
        # At most three for one message: the pauses between its attempts grow quickly.
        if faults[message_id] >= 3 or dice.random() > 0.3:
            return False
        faults[message_id] += 1
        return True

    def behave(_: int, got: Received) -> Behave:
        if has_fault(got.id):
            return dice.choice([answer(500), reset])
        accepted.append(got)
        return dice.choice([answer(204), slow(0.05)])

    def respond(mail: EmailMessage) -> str:
        return "451 try again later" if has_fault(mail["Message-ID"]) else ACCEPTED

    with receiving() as receiver, mail_server() as mails:
        receiver.behave, mails.respond = behave, respond
        environ = {
            "HASAT_DATABASE_URL": database.url,
            "HASAT_HOME": str(tmp_path),
            "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.0/8",
            "HASAT_WEBHOOKS_MAX_ATTEMPTS": "1000",
            "HASAT_WEBHOOKS_HTTP_TIMEOUT_SECONDS": "2",
            "HASAT_SMTP_URL": mails.url,
            "HASAT_SMTP_FROM": "Hasat <hasat@example.com>",
        }
        spec = WatchListSpec.model_validate(
            {
                "dataset": "toys",
                "keys": WATCHED,
                "channels": [
                    {"type": "webhook", "url": receiver.url, "secret": "whsec_c2VjcmV0"},
                    {"type": "email", "to": ["muhasebe@example.com"]},
                ],
            }
        )
        settings = load_settings(environ=environ)
        await create_watchlist(store, settings, TOYS, "customers", LOCAL, spec)
        processes = Processes(
            {**environ, "PYTHONPATH": os.pathsep.join(sys.path)}, tmp_path / "output.txt"
        )
        try:
            for what in ("deliver", "deliver", "sync"):
                processes.start(what, dice.randrange(1 << 30))
            for _ in range(KILLS):
                seen, seq = len(accepted), (await head_of(store))["seq"]

                async def at_work(seen: int = seen, seq: int = seq) -> bool:
                    return len(accepted) > seen and (await head_of(store))["seq"] > seq

                await eventually(at_work)
                await asyncio.sleep(dice.random() * 0.3)
                for what in ("deliver", "sync"):
                    processes.kill_one(what, dice)
                    processes.start(what, dice.randrange(1 << 30))
            processes.kill_one("sync", dice)

            async def all_arrived() -> bool:
                found = await get_watchlist(store, "customers", LOCAL)
                return not (found.lag or found.collected or found.waiting)

            await eventually(all_arrived)
        finally:
            processes.end()
        expected = await _expected(store)
        assert len(expected) > 10
        by_webhook = {got.id: got.json for got in reversed(accepted)}
        order = list(dict.fromkeys(got.id for got in accepted))
        arrived = [
            (one["seq"], one["key"], one["changeType"], one["before"])
            for message in order
            for one in by_webhook[message]["changes"]
        ]
        assert arrived == expected
        mails_by_id = {mail["Message-ID"]: mail for mail in reversed(mails.accepted)}
        lines = [
            line
            for number in dict.fromkeys(mail["Message-ID"] for mail in mails.accepted)
            for line in _lines(mails_by_id[number])
        ]
        verbs = {"added": "eklendi", "modified": "değişti", "removed": "silindi"}
        assert lines == [(key, verbs[kind]) for _, key, kind, _ in expected]


async def _expected(store: Store) -> list[tuple[int, str, str, Any]]:
    """Return the changes of the watched keys, filtered in memory."""
    kinds = {1: "added", 2: "modified", 3: "removed"}
    watched = set(WATCHED)
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT seq, key, kind, before FROM feed.change WHERE dataset = 'toys' ORDER BY seq"
        )
        rows = await cursor.fetchall()
    return [(seq, key, kinds[kind], before) for seq, key, kind, before in rows if key in watched]


def _lines(mail: EmailMessage) -> list[tuple[str, str]]:
    body = mail.get_body(("plain",))
    assert body is not None
    return re.findall(r"^\S+ (k\d+) (eklendi|değişti|silindi)", body.get_content(), re.MULTILINE)


if __name__ == "__main__":
    asyncio.run(deliver() if sys.argv[1] == "deliver" else sync(int(sys.argv[2])))
