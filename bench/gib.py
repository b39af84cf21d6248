"""Cost of a sync of the taxpayer lists, relative to the minimum work of any reader.

All figures come from one run, so that the ratios hold on any machine. The baselines are measured
before and after each sync, in one process, one list after the other: unzipping both, and expat
tokenising both without a handler (fed from the ZIPs, less the unzipping). Hasat is the command
`hasat gib sync` with an embedded PostgreSQL; its time is `seconds` of its JSON, from the lists on
disk to the commit. The peer is the original's pipeline: parse everything, COPY to temporary
tables, diff in SQL.

    python bench/gib.py                       # a million taxpayers, HASAT_BENCH_USERS for others
    python bench/gib.py --users 100000 --peer
    python bench/gib.py --thrice              # also three times as many
    python bench/gib.py --json                # the figures as JSON

Memory is the proportional set size of all processes of the command and of PostgreSQL, without the
shared buffers.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.parsers import expat

import psutil  # type: ignore[import-untyped]
import structlog

from _gib_peer import seed_pipeline
from hasat.console.runtime import open_migrated_store
from hasat.settings import Settings, load_settings
from hasat.sources.gib.simulator.lists import BOXES, ListVariant, Publisher

BLOCK = 1 << 20
MEGABYTE = 1 << 20


@dataclass
class Lists:
    """Both lists in one of the measured states."""

    pk: Path
    gb: Path

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.pk, self.gb


@dataclass(frozen=True)
class ListStates:
    """The lists of one size: first, shuffled, changed by one step, and with 15 % removed."""

    users: int
    first: Lists
    shuffled: Lists
    changed: Lists
    thinned: Lists


def write_lists(folder: Path, users: int) -> ListStates:
    """Write all lists that the measurements need; reuse those of an earlier run."""
    publisher = Publisher(users)
    found = {}

    def lists(name: str, variant: ListVariant) -> None:
        place = folder / f"{users}-{name}"
        paths = {box: place / f"newUser{box.title()}Listxml.zip" for box in BOXES}
        if not all(path.exists() for path in paths.values()):
            place.mkdir(parents=True, exist_ok=True)
            publisher.write(place, variant)
        found[name] = Lists(paths["PK"], paths["GB"])

    lists("first", ListVariant())
    lists("shuffled", ListVariant(shuffle=1))
    publisher.step()
    lists("changed", ListVariant(shuffle=2))
    publisher.change(removed=users * 15 // 100)
    lists("thinned", ListVariant(shuffle=3))
    return ListStates(users, **found)


def unzip(lists: Lists) -> None:
    for path in lists.paths:
        with zipfile.ZipFile(path) as archive, archive.open(archive.infolist()[0]) as stream:
            while stream.read(BLOCK):
                pass


def tokenise(lists: Lists) -> None:
    for path in lists.paths:
        parser = expat.ParserCreate()
        with zipfile.ZipFile(path) as archive, archive.open(archive.infolist()[0]) as stream:
            while block := stream.read(BLOCK):
                parser.Parse(block, False)
        parser.Parse(b"", True)


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


class Memory:
    """Peak memory of the processes of a command and of PostgreSQL, sampled."""

    def __init__(self, server: int) -> None:
        self._server = server
        self.peak = 0
        self.last_peak = 0

    @contextmanager
    def watching(self, command: int) -> Iterator[None]:
        over = threading.Event()
        self.last_peak = 0

        def watch() -> None:
            while not over.wait(0.2):
                self.last_peak = max(self.last_peak, _tree(command) + _tree(self._server))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.peak = max(self.peak, self.last_peak)


def _tree(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        processes = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_own_memory(one.pid) for one in processes)


def _own_memory(pid: int) -> int:
    """Return the proportional set size of a process without shared memory (shared buffers)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    shares = dict(line.split(":", 1) for line in lines[1:])
    return sum(int(shares[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_File"))


@dataclass
class Hasat:
    """Runs syncs with the command line in a separate HASAT_HOME."""

    settings: Settings
    memory: Memory
    runs: list[dict[str, Any]] = field(default_factory=list)

    async def sync(self, lists: Lists, expected: str) -> tuple[float, float]:
        """Return the seconds of the sync and of the whole command."""
        return self._command(
            ["gib", "sync", "--pk", str(lists.pk), "--gb", str(lists.gb)], expected
        )

    async def approve(self) -> tuple[float, float]:
        return self._command(["holds", "approve", str(self.runs[-1]["run"])], "committed")

    def _command(self, words: list[str], expected: str) -> tuple[float, float]:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "hasat", *words, "--json"],
            env=os.environ | {"HASAT_HOME": str(self.settings.home), "HASAT_LOG_LEVEL": "warning"},
            stdout=subprocess.PIPE,
            text=True,
        )
        with self.memory.watching(process.pid):
            output, _ = process.communicate()
        whole = time.perf_counter() - began
        result = json.loads(output)
        if result["outcome"] != expected:
            raise SystemExit(f"expected {expected}: {output}")
        self.runs.append(result)
        return result["seconds"] or whole, whole


@dataclass(frozen=True)
class Row:
    """One row of the table; the baseline was measured right before and after."""

    what: str
    seconds: float
    whole: float
    baseline: str
    baseline_seconds: float
    goal: float | None

    @property
    def ratio(self) -> float:
        return self.seconds / self.baseline_seconds

    def __str__(self) -> str:
        verdict = ""
        if self.goal is not None:
            verdict = f"goal {self.goal:.0f}: {'met' if self.ratio <= self.goal else 'MISSED'}"
        return (
            f"{self.what:28} {self.seconds:8.2f} s (command {self.whole:7.2f} s) "
            f"{self.ratio:7.2f} x {self.baseline} of {self.baseline_seconds:5.2f} s  {verdict}"
        )


Action = Callable[[], Awaitable[tuple[float, float]]]


class Measurements:
    """Measures actions, with the baselines before and after each."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._last = self._baselines()
        self.rows: list[Row] = []

    async def take(self, what: str, action: Action, baseline: str, goal: float | None) -> None:
        seconds, whole = await action()
        before, self._last = self._last, self._baselines()
        baseline_seconds = (before[baseline] + self._last[baseline]) / 2
        self.rows.append(Row(what, seconds, whole, baseline, baseline_seconds, goal))
        print(self.rows[-1], file=sys.stderr, flush=True)

    def _baselines(self) -> dict[str, float]:
        unzipping = seconds_of(lambda: unzip(self._lists))
        return {"unzip": unzipping, "expat": seconds_of(lambda: tokenise(self._lists)) - unzipping}


async def measure(states: ListStates, folder: Path, *, peer: bool) -> tuple[list[Row], float]:
    """Return all rows of the table for one size, which are printed as progress, and megabytes."""
    settings = load_settings(environ={"HASAT_HOME": str(folder / f"home-{states.users}")})
    print(f"{states.users:,} taxpayers", file=sys.stderr)
    async with open_migrated_store(settings) as store:
        async with store.connection() as conn:
            row = await (await conn.execute("SELECT pg_backend_pid()")).fetchone()
            assert row is not None
            memory = Memory(psutil.Process(row[0]).ppid())
        hasat = Hasat(settings, memory)

        async def run_peer() -> tuple[float, float]:
            began = time.perf_counter()
            async with store.connection() as conn:
                await seed_pipeline(conn, states.first.paths)
            taken = time.perf_counter() - began
            return taken, taken

        takes: list[tuple[str, Action, str, float | None]] = [
            ("first sync", partial(hasat.sync, states.first, "committed"), "expat", 4.0),
            ("nothing changed", partial(hasat.sync, states.shuffled, "unchanged"), "unzip", 3.0),
            ("0.03 % changed", partial(hasat.sync, states.changed, "committed"), "unzip", 5.0),
            ("15 % removed, held", partial(hasat.sync, states.thinned, "held"), "unzip", None),
            ("15 % removed, approved", hasat.approve, "unzip", None),
        ]
        if peer:
            takes.append(("the original, first sync", run_peer, "unzip", None))
            takes.append(("the original, unchanged", run_peer, "unzip", None))
        measurements = Measurements(states.first)
        for take in takes:
            memory.last_peak = 0
            await measurements.take(*take)
            print(f"{'':28} {memory.last_peak / MEGABYTE:8.0f} MB", file=sys.stderr, flush=True)
    return measurements.rows, memory.peak / MEGABYTE


def main() -> None:
    """Write lists, measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    users = int(os.environ.get("HASAT_BENCH_USERS", "1000000"))
    parser.add_argument("--users", type=int, default=users)
    parser.add_argument("--thrice", action="store_true", help="also three times as many")
    parser.add_argument("--peer", action="store_true", help="also the original's pipeline (slow)")
    parser.add_argument("--lists", type=Path, help="folder of the lists; written if missing")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        scratch = Path(name)
        # The user of the PostgreSQL server needs access to the folder.
        scratch.chmod(0o711)
        found = []
        for users in (arguments.users, *([3 * arguments.users] if arguments.thrice else [])):
            states = write_lists(arguments.lists or scratch / "lists", users)
            found.append(asyncio.run(measure(states, scratch, peer=arguments.peer)))
    if arguments.json:
        print(json.dumps([_document(*one) for one in found], indent=2))
        return
    for _, megabytes in found:
        print(f"{'peak memory':28} {megabytes:8.0f} MB, goal 400")
    if arguments.thrice:
        for once, thrice in zip(*(rows for rows, _ in found), strict=True):
            print(f"{once.what:28} {thrice.seconds / once.seconds:.2f} x for 3 x as many")


def _document(rows: list[Row], megabytes: float) -> dict[str, Any]:
    return {"rows": [{**asdict(row), "ratio": row.ratio} for row in rows], "megabytes": megabytes}


if __name__ == "__main__":
    main()
