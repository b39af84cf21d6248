"""Measure the start of the embedded PostgreSQL and of commands against the plain programs.

Every figure is the median of rounds in which Hasat and the plain commands take turns, so that the
ratios hold on any machine. The database is measured in seconds, commands in processor time with the
database running. Run `python bench/start.py`, or with `--json`.
"""

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

import psycopg
import structlog

from hasat.console.runtime import open_migrated_store
from hasat.settings import Settings, load_settings
from hasat.store import open_store
from hasat.store.embedded.account import Account, server_account
from hasat.store.embedded.binaries import Binaries, server_binaries
from hasat.testing.database import database_server, throw_away_database


class PlainServer:
    """`initdb` and `pg_ctl start` of the same programs in a separate folder."""

    def __init__(self, folder: Path, account: Account, binaries: Binaries) -> None:
        self.folder = folder
        self._account = account
        self._binaries = binaries
        folder.mkdir()
        folder.chmod(0o700)
        if account.foreign:
            os.chown(folder, account.uid, account.gid)

    def initdb(self) -> None:
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        self._run("initdb", "--encoding=UTF8", "--locale=C", "--username=hasat", "--auth=trust")

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}'"
        self._run("pg_ctl", "start", "--wait", "--log", f"{self.folder}/log", "--options", options)

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "--wait")

    def create_database(self) -> None:
        with psycopg.connect(
            host=str(self.folder), user="hasat", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute("CREATE DATABASE bench")
            connection.execute("DROP DATABASE bench")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._binaries.program(program), "-D", f"{self.folder}/data", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **self._account.switch(),
        )


async def _seconds(action: Callable[[], Awaitable[None] | None]) -> float:
    started = time.perf_counter()
    waiting = action()
    if waiting is not None:
        await waiting
    return time.perf_counter() - started


async def _start(settings: Settings) -> float:
    """Return the seconds until a migrated database responds."""
    started = time.perf_counter()
    async with open_store(settings) as store:
        await store.now()
        return time.perf_counter() - started


def _processor_seconds(command: Sequence[str], home: Path) -> float:
    """Return the processor time of a command and of the processes that it waits for."""

    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    before = used()
    subprocess.run(
        [sys.executable, *command],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "HASAT_HOME": str(home)},
    )
    return used() - before


async def measure_commands(rounds: int, home: Path) -> dict[str, dict[str, float]]:
    """Measure commands in turns with a Python that does nothing."""
    commands = {
        "plain python": ("-c", "pass"),
        "hasat --version": ("-m", "hasat", "--version"),
        "hasat jobs list": ("-m", "hasat", "jobs", "list"),
    }
    measured: dict[str, list[float]] = {name: [] for name in commands}
    # The open store keeps the server running.
    async with open_migrated_store(load_settings(environ={"HASAT_HOME": str(home)})):
        for _ in range(rounds):
            for name, command in commands.items():
                measured[name].append(await asyncio.to_thread(_processor_seconds, command, home))
    plain, *others = ((name, median(values)) for name, values in measured.items())
    return {
        name: {"processor seconds": seconds, plain[0]: plain[1], "ratio": seconds / plain[1]}
        for name, seconds in others
    }


async def measure(rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    account = server_account(Path("/nonexistent"))
    plain = PlainServer(folder / "plain", account, server_binaries(None, None, account))
    measured: dict[str, list[float]] = {}

    def record(name: str, seconds: float) -> None:
        measured.setdefault(name, []).append(seconds)

    async with database_server("embedded") as url:
        for number in range(rounds):
            settings = load_settings(environ={"HASAT_HOME": str(folder / f"home {number}")})
            record("plain initdb", await _seconds(plain.initdb))
            record("first start", await _start(settings))
            record("plain pg_ctl start", await _seconds(plain.start))
            record("plain CREATE and DROP DATABASE", await _seconds(plain.create_database))
            plain.stop()
            record("restart", await _start(settings))

            async def throw_away() -> None:
                async with throw_away_database(url):
                    pass

            if number == 0:
                await throw_away()  # makes the template
            record("throw-away database", await _seconds(throw_away))
    seconds = {name: median(values) for name, values in measured.items()}
    baselines = {
        "first start": "plain initdb",
        "restart": "plain pg_ctl start",
        "throw-away database": "plain CREATE and DROP DATABASE",
    }
    return {
        name: {
            "seconds": seconds[name],
            other: seconds[other],
            "ratio": seconds[name] / seconds[other],
        }
        for name, other in baselines.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    # /tmp instead of TMPDIR: the user of the server must be able to reach it.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        result = asyncio.run(measure(arguments.rounds, folder))
        result |= asyncio.run(measure_commands(arguments.rounds, folder / "commands"))
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"median of {arguments.rounds} rounds")
    for name, figures in result.items():
        (unit, seconds), (other, baseline) = list(figures.items())[:2]
        print(
            f"{name:20} {seconds:6.3f} {unit:17}   {other:32} {baseline:6.3f} s   "
            f"{figures['ratio']:5.2f} x"
        )


if __name__ == "__main__":
    main()
