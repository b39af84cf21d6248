"""Hasat in real processes, each installation in its own folder."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from anyio.from_thread import start_blocking_portal

from hasat.store.embedded.server import EmbeddedServer
from support.forks import run_hasat

TIMEOUT_SECONDS = 90.0
_PROGRAM = [sys.executable, "-m", "hasat"]


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of a condition; fail with its name after a time-out."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"did not happen: {what}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def copy_database(home: Path, template: Path) -> None:
    """Copy the database of another home, whose server is not running."""
    (home / "postgres").mkdir(parents=True)
    copy = ["cp", "-a", str(template / "postgres" / "data"), str(home / "postgres")]
    subprocess.run(copy, check=True)


class Commands:
    """Runs the commands of a group on the database of a test."""

    def __init__(self, group: str, database_url: str, home: Path, columns: int) -> None:
        self._group = group
        self._environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "COLUMNS": str(columns),
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": database_url,
        }

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_hasat(self._group, *words, environ=self._environ)

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


class Installation:
    """A HASAT_HOME and the processes that use it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.program = _PROGRAM
        self._started: list[subprocess.Popen[str]] = []
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HASAT_")}
        self.environ = clean | {
            "HASAT_HOME": str(home),
            "HASAT_PORT": str(self.port),
            "HASAT_JOBS_HEARTBEAT_SECONDS": "0.5",
            "HASAT_JOBS_STALLED_SECONDS": "3",
        }

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *arguments: str, files: int | None = None) -> subprocess.Popen[str]:
        """Start a command; `files` is the number of files that it may open."""
        log = (self.home.parent / "output.txt").open("a")
        command = [*self.program, *arguments]
        if files is not None:
            command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
        process = subprocess.Popen(
            command,
            env=self.environ,
            stdout=log,
            stderr=log,
            text=True,
            cwd=self.home.parent,
            start_new_session=True,
        )
        log.close()
        self._started.append(process)
        return process

    def output(self) -> str:
        """Return everything that started processes have printed."""
        return (self.home.parent / "output.txt").read_text()

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if self.program == _PROGRAM:
            return run_hasat(*arguments, environ=self.environ, cwd=self.home.parent)
        return subprocess.run(
            [*self.program, *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            cwd=self.home.parent,
            timeout=TIMEOUT_SECONDS,
        )

    def json(self, *arguments: str) -> Any:
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def get(self, path: str) -> httpx2.Response | None:
        try:
            return httpx2.get(f"{self.address}{path}", timeout=5)
        except httpx2.HTTPError:
            return None

    def ready(self) -> bool:
        response = self.get("/readyz")
        return response is not None and response.status_code == 200

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        with start_blocking_portal() as portal:
            portal.call(partial(EmbeddedServer(self.home).stop, force=True))
