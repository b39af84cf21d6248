"""`hasat jobs` as a person or a script uses it: data on stdout, exit codes by outcome."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.testing.database import ThrowAwayDatabase
from support.forks import run_hasat

OPTIONS = ("--set", "jobs.heartbeat_seconds=0.3", "--set", "jobs.stalled_seconds=3", "jobs")


class Hasat:
    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self._home = home

    @contextmanager
    def start(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, "-m", "hasat", *OPTIONS, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._home,
            env=self._environ(environment),
        ) as process:
            try:
                yield process
            finally:
                # A test that failed in between must not wait for it.
                process.kill()

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        done = run_hasat(*OPTIONS, *arguments, environ=self._environ(environment), cwd=self._home)
        return done.returncode, done.stdout, done.stderr

    def _environ(self, more: dict[str, str]) -> dict[str, str]:
        own = {"HASAT_DATABASE_URL": self.url, "HASAT_HOME": str(self._home)}
        return os.environ | own | more

    def data(self, *arguments: str, code: int = 0, **environment: str) -> Any:
        found, out, err = self.run(*arguments, "--json", **environment)
        assert found == code, err
        return json.loads(out)

    def execute(self, query: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(query.encode())

    @contextmanager
    def stuck_housekeeping(self) -> Iterator[None]:
        """Hold a row that the job waits for."""
        with psycopg.connect(self.url) as connection:
            connection.execute(
                "INSERT INTO jobs.run (job, trigger, state, outcome, finished_at)"
                " SELECT 'old', 'hand', 'finished', 'done', now() - interval '1 year'"
                " FROM generate_series(1, 2)"
            )
            connection.commit()
            connection.execute("SELECT FROM jobs.run WHERE job = 'old' FOR UPDATE")
            yield


@pytest.fixture
def hasat(database: ThrowAwayDatabase, tmp_path: Path) -> Hasat:
    return Hasat(database.url, tmp_path)


def until(condition: Callable[[], Any], what: str, process: subprocess.Popen[str]) -> Any:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError(f"waited for {what}")


def run_in_state(hasat: Hasat, state: str) -> int | None:
    with psycopg.connect(hasat.url) as connection:
        row = connection.execute(
            "SELECT id FROM jobs.run WHERE job = 'housekeeping' AND state = %s", [state]
        ).fetchone()
    return row[0] if row else None


def test_a_job_by_hand_prints_its_run_and_exits_by_its_outcome(hasat: Hasat) -> None:
    league = {"ONLY_LEAGUE_ID": "39"}
    job = "auto_finish_stale_fixtures"
    nothing = hasat.data("run", job, "--param", "threshold_hours=3.5", code=3, **league)
    assert (nothing["outcome"], nothing["state"]) == ("nothing", "finished")
    assert nothing["params"]["threshold_hours"] == 3.5
    assert nothing["params"]["only_league_id"] == 39
    for wrong in ("treshold_hours=1", "threshold_hours=abc"):
        code, out, err = hasat.run("run", job, "--param", wrong)
        assert (code, out) == (2, "")
        assert "threshold_hours" in err
    hasat.execute(
        "INSERT INTO jobs.run (job, trigger, state, outcome, finished_at)"
        " SELECT 'old', 'hand', 'finished', 'done', now() - interval '1 year'"
        " FROM generate_series(1, 3)"
    )
    done = hasat.data("run", JOB_ID="housekeeping", **league)
    assert (done["outcome"], done["rows_changed"]) == ("done", 2)
    assert done["params"] == {}
    code, out, err = hasat.run("run")
    assert (code, out) == (2, "")
    assert "JOB_ID" in err
    code, out, err = hasat.run("run", "housekeping")
    assert (code, out) == (1, "")
    assert "Did you mean 'housekeeping'?" in err


def test_what_runs_when_and_what_has_run(hasat: Hasat) -> None:
    hasat.execute(
        "INSERT INTO jobs.run (job, trigger, state, outcome, finished_at, message)"
        " VALUES ('housekeeping', 'hand', 'finished', 'failed', now(), 'odd [/b] text')"
    )
    first = run_in_state(hasat, "finished")
    (job,) = (job for job in hasat.data("list") if job["name"] == "housekeeping")
    assert (job["cron"], job["zone"]) == ("15 4 * * *", "Europe/Istanbul")
    assert (job["lane"], job["enabled"]) == ("daily", True)
    assert job["next_due"].endswith("T04:15:00+03:00")
    assert (job["last_run"]["id"], job["last_run"]["outcome"]) == (first, "failed")
    code, out, err = hasat.run("retry", str(first), "--json")
    again = json.loads(out)
    assert (code, again["trigger"], again["state"]) == (0, "retry", "queued")
    assert "hasat worker" in err
    # A message may look like markup; it is shown as it is.
    code, out, err = hasat.run("history", "housekeeping", "--failed", COLUMNS="200")
    assert (code, out.count("housekeeping"), "odd [/b] text" in out) == (0, 1, True)
    assert hasat.data("show", str(again["id"]))["id"] == again["id"]
    stopped = hasat.data("stop", str(again["id"]))
    assert (stopped["state"], stopped["outcome"]) == ("finished", "interrupted")
    code, _, err = hasat.run("stop", str(again["id"]))
    assert (code, "has already finished" in err) == (1, True)


def test_a_busy_job_is_named_and_an_interrupted_one_is_recorded(hasat: Hasat) -> None:
    with hasat.stuck_housekeeping():
        for number in (signal.SIGINT, signal.SIGTERM):
            with hasat.start("run", "housekeeping") as process:
                run_id = until(partial(run_in_state, hasat, "running"), "the job to run", process)
                if number == signal.SIGINT:
                    busy = hasat.data("run", "housekeeping", code=3)
                    assert busy["outcome"] == "skipped"
                    assert f"Run {run_id} of housekeeping has been running" in busy["message"]
                    assert f":{process.pid})" in busy["message"]
                process.send_signal(number)
                _, err = process.communicate(timeout=30)
            assert (process.returncode, "Interrupted" in err) == (130, True)
    with psycopg.connect(hasat.url) as connection:
        rows = connection.execute(
            "SELECT outcome FROM jobs.run WHERE job = 'housekeeping' ORDER BY id"
        ).fetchall()
    assert rows == [("interrupted",), ("skipped",), ("interrupted",)]
