"""Server, syncs and consumers of every kind as real processes, killed -9 at random moments.

HASAT_CAMPAIGN says how many kills there are; the default is small. Whatever was killed when: in the
end every consumer equals the server, no change is missing, and none came twice.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest
from anyio.from_thread import BlockingPortal

from hasat.clock import local_time, parse_local_time
from hasat.sources.gib.simulator.lists import Publisher
from hasat.store import MigrationSet
from hasat.testing.database import throw_away_database
from support import followers
from support.followers import FOLLOWERS
from support.processes import Installation, eventually

KILLS = int(os.environ.get("HASAT_CAMPAIGN", "10"))
GIB = MigrationSet("gib", files("hasat.sources.gib") / "migrations")
TAXPAYERS = 150
# Every way in which the feed keeps a time.
TIMES = {
    "version": ["committed_at"],
    "version_dataset": ["committed_at"],
    "head": ["committed_at", "floor_at"],
    "change": ["changed_at"],
    "archive": ["committed_at", "created_at"],
}


@pytest.fixture
def urls(background: BlockingPortal, server_url: str) -> Iterator[tuple[str, str]]:
    """The server's database and one of a consumer."""
    with (
        background.wrap_async_context_manager(throw_away_database(server_url, [GIB])) as own,
        background.wrap_async_context_manager(throw_away_database(server_url, None)) as other,
    ):
        yield own.url, other.url


class Campaign:
    """The processes, who may be killed, and the world that goes on around them."""

    def __init__(
        self, installation: Installation, urls: tuple[str, str], seed: int, folder: Path
    ) -> None:
        self.installation = installation
        self.dice = random.Random(seed)
        self.folder = folder
        self.url, other = urls
        limits = ("allowed_removal", "modified", "added", "list_users_drop", "list_bytes_drop")
        installation.environ |= {
            f"HASAT_GIB_MAX_{limit.upper()}_PERCENT": "100" for limit in limits
        }
        installation.environ |= {
            "HASAT_DATABASE_URL": self.url,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self.publisher = Publisher(TAXPAYERS, seed)
        self.targets = {
            "einvoice": f"sqlite:///{folder / 'einvoice.db'}",
            "edespatch": other,
        }
        self.gone: list[int] = []
        self.processes: dict[str, subprocess.Popen[Any]] = {}

    # What happens in the world.

    def churn(self) -> dict[str, Path]:
        """Publish new lists: some are new, changed or gone, and one who was gone returns."""
        before = set(self.publisher.numbers)
        self.publisher.change(added=4, modified=6, removed=5)
        if self.gone and self.dice.random() < 0.7:
            self.publisher.numbers.append(self.gone.pop())
        self.gone += sorted(before - set(self.publisher.numbers))[:1]
        folder = self.folder / f"lists{time.monotonic_ns()}"
        folder.mkdir()
        return {str(box): path for box, path in self.publisher.write(folder).items()}

    def time_passes(self, how_much: timedelta) -> None:
        """Everything kept so far, by the server and by its consumers, is older than it was."""
        with psycopg.connect(self.url) as conn:
            for table, columns in TIMES.items():
                moved = ", ".join(f"{column} = {column} - %(by)s" for column in columns)
                conn.execute(f"UPDATE feed.{table} SET {moved}", {"by": how_much})
        file = self.file("time")
        if file.exists():
            kept = json.loads(file.read_text())
            kept["place"] = local_time(parse_local_time(kept["place"]) - how_much)
            file.write_text(json.dumps(kept))

    def sync(self, *, settings: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        lists = self.churn()
        options = [word for pair in settings for word in ("--set", pair)]
        return self.installation.start(
            *options, "gib", "sync", "--pk", str(lists["PK"]), "--gb", str(lists["GB"])
        )

    def sync_for_sure(self, *settings: str) -> None:
        """A sync that committed; one that meets the remains of a killed one is tried again."""
        eventually(lambda: self.sync(settings=settings).wait() == 0, "a sync commits")

    # Who takes part.

    def start(self, name: str) -> None:
        if name == "server":
            self.processes[name] = self.installation.start("serve")
        elif name in self.targets:
            self.processes[name] = self.installation.start("replica", name, *self._between(name))
        else:
            words = [name, self.installation.address, "einvoice", str(self.file(name))]
            with (self.folder / f"{name}.txt").open("a") as said:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, followers.__file__, *words],
                    env=self.installation.environ,
                    stdout=said,
                    stderr=said,
                )

    def start_all(self) -> None:
        for name in ("server", *self.targets, *FOLLOWERS):
            if name not in self.processes:
                self.start(name)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        # A process that ended before failed.
        assert process.wait() == -signal.SIGKILL, f"{name}: {self.installation.output()}"

    def kill_all(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def file(self, kind: str) -> Path:
        return self.folder / f"{kind}.json"

    def _between(self, dataset: str) -> tuple[str, ...]:
        return ("--from", self.installation.address, "--to", self.targets[dataset])

    # How it must end.

    def digest(self, dataset: str) -> dict[str, Any]:
        answer = self.installation.get(f"/api/v1/{dataset}/digest")
        assert answer is not None
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def all_are_equal(self) -> str:
        """Every consumer reaches the server and holds what it holds; what the replicas said."""
        for name in self.processes.keys() - {"server"}:
            self.kill(name)
        if "server" not in self.processes:
            self.start("server")
        eventually(self.installation.ready, "the server answers")
        with ThreadPoolExecutor() as pool:
            said = list(pool.map(self._replica_is_equal, self.targets))
        for kind, follower_of in FOLLOWERS.items():
            follower = follower_of(self.installation.address, "einvoice", self.file(kind))
            follower.poll()
            follower.client.close()
            assert follower.digest == self.digest("einvoice")["digest"], kind
            assert follower.complete, (kind, follower.seen)
            assert follower.seen[-1] == self.digest("einvoice")["head"]
        with psycopg.connect(self.url) as conn:
            rows = conn.execute(
                "SELECT h.dataset, h.seq - h.floor, count(c.seq)"
                " FROM feed.head h LEFT JOIN feed.change c ON c.dataset = h.dataset"
                " AND c.seq > h.floor GROUP BY h.dataset, h.seq, h.floor"
            ).fetchall()
        for dataset, kept, counted in rows:
            assert kept == counted, f"the numbers of {dataset} have a gap"
        return "".join(said)

    def _replica_is_equal(self, dataset: str) -> str:
        words = ("replica", dataset, *self._between(dataset), "--once", "--verify", "--json")
        done = self.installation.call(*words)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        truth = self.digest(dataset)
        assert (report["digest"], report["records"]) == (truth["digest"], truth["count"])
        return done.stderr


@pytest.fixture
def campaign(
    installation: Installation, urls: tuple[str, str], tmp_path: Path
) -> Iterator[Campaign]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    installation.home.mkdir(parents=True)
    campaign = Campaign(installation, urls, seed, tmp_path)
    yield campaign
    for process in campaign.processes.values():
        process.kill()
        process.wait()


def test_whatever_is_killed_when_every_consumer_ends_equal(campaign: Campaign) -> None:
    dice = campaign.dice
    campaign.sync_for_sure()
    # The server's clock goes back an hour: what is committed from now on is stamped earlier.
    campaign.time_passes(-timedelta(hours=1))
    campaign.start_all()
    killed = 0
    while killed < KILLS:
        syncs = [campaign.sync() for _ in range(dice.choice([1, 1, 2]))]
        for victim in dice.sample(["sync", "server", *campaign.targets, *FOLLOWERS], 3):
            time.sleep(dice.uniform(0, 1.5))
            print(f"kill {killed}: {victim}")
            if victim == "sync":
                syncs[0].kill()
            else:
                campaign.kill(victim)
                campaign.start(victim)
            killed += 1
        for sync in syncs:
            # Committed or unchanged, not needed because another is at work, or killed.
            assert sync.wait() in {0, 3, -signal.SIGKILL}, campaign.installation.output()
    campaign.sync_for_sure()
    campaign.all_are_equal()


def test_consumers_that_were_away_too_long_or_lived_through_a_restore_start_over(
    campaign: Campaign,
) -> None:
    installation = campaign.installation
    campaign.sync_for_sure()
    campaign.all_are_equal()

    # All are away while weeks pass and changes are kept for a day only, then for long again.
    for days in (1, 1, 365):
        campaign.time_passes(timedelta(days=10))
        campaign.sync_for_sure(f"gib.change_retention_days={days}")
    assert "have expired" in campaign.all_are_equal()

    # The server is set back to an earlier day and goes on from there with other lists.
    saved = campaign.folder / "saved.dump"
    assert installation.call("db", "backup", str(saved)).returncode == 0
    campaign.sync_for_sure()
    epoch = campaign.digest("einvoice")["epoch"]
    campaign.all_are_equal()
    campaign.kill_all()
    done = installation.call("db", "restore", str(saved), "--yes")
    assert done.returncode == 0, done.stderr
    campaign.start_all()
    campaign.sync_for_sure()
    campaign.all_are_equal()
    assert campaign.digest("einvoice")["epoch"] != epoch
