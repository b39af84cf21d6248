"""`hasat jobs` as a person or a script uses it: data on stdout, exit codes by outcome."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.testing.database import ThrowAwayDatabase

COMMAND = [
    *(sys.executable, "-m", "hasat"),
    *("--set", "jobs.heartbeat_seconds=0.3", "--set", "jobs.stalled_seconds=3"),
    "jobs",
]


class Hasat:
    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self._home = home

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._home,
            env=os.environ
            | {"HASAT_DATABASE_URL": self.url, "HASAT_HOME": str(self._home)}
            | environment,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        with self.start(*arguments, **environment) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def data(self, *arguments: str, code: int = 0, **environment: str) -> Any:
        found, out, err = self.run(*arguments, "--json", **environment)
        assert found == code, err
        return json.loads(out)

    def execute(self, query: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(query.encode())

    @contextmanager
    def stuck_housekeeping(self) -> Iterator[None]:
        """While this lasts, the job waits for a row that somebody else holds."""
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


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


def running_housekeeping(hasat: Hasat) -> int | None:
    with psycopg.connect(hasat.url) as connection:
        row = connection.execute(
            "SELECT id FROM jobs.run WHERE job = 'housekeeping' AND state = 'running'"
        ).fetchone()
    return row[0] if row else None


def test_a_job_by_hand_prints_its_run_and_exits_by_its_outcome(hasat: Hasat) -> None:
    nothing = hasat.data("run", "housekeeping", "--param", "depth=2", "--param", "d=1-1", code=3)
    assert (nothing["outcome"], nothing["state"]) == ("nothing", "finished")
    assert nothing["params"] == {"depth": 2, "d": "1-1"}
    hasat.execute(
        "INSERT INTO jobs.run (job, trigger, state, outcome, finished_at)"
        " SELECT 'old', 'hand', 'finished', 'done', now() - interval '1 year'"
        " FROM generate_series(1, 3)"
    )
    done = hasat.data("run", JOB_ID="housekeeping", ONLY_LEAGUE_ID="39")
    assert (done["outcome"], done["rows_changed"]) == ("done", 2)
    assert done["params"] == {"only_league_id": 39}
    code, out, err = hasat.run("run")
    assert (code, out) == (2, "")
    assert "JOB_ID" in err
    code, out, err = hasat.run("run", "housekeping")
    assert (code, out) == (1, "")
    assert "Did you mean 'housekeeping'?" in err


def test_what_runs_when_and_what_has_run(hasat: Hasat) -> None:
    first = hasat.data("run", "housekeeping", code=3)
    (job,) = (job for job in hasat.data("list") if job["name"] == "housekeeping")
    assert (job["cron"], job["zone"], job["lane"], job["enabled"]) == (
        *("15 4 * * *", "Europe/Istanbul"),
        *("daily", True),
    )
    assert job["next_due"].endswith("T04:15:00+03:00")
    assert (job["last_run"]["id"], job["last_run"]["outcome"]) == (first["id"], "nothing")
    code, out, err = hasat.run("retry", str(first["id"]), "--json")
    again = json.loads(out)
    assert (code, again["trigger"], again["state"]) == (0, "retry", "queued")
    assert "hasat worker" in err
    assert hasat.data("show", str(again["id"]))["id"] == again["id"]
    history = hasat.data("history", "housekeeping", "--limit", "5")
    assert [run["id"] for run in history] == [again["id"], first["id"]]
    assert hasat.data("history", "--failed") == []
    # A message may look like markup; it is shown as it is.
    hasat.execute("UPDATE jobs.run SET message = 'odd [/b] text'")
    assert "odd [/b] text" in hasat.run("history", COLUMNS="200")[1]
    code, _, err = hasat.run("show", "999")
    assert (code, "There is no run 999." in err) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_busy_job_is_named_and_an_interrupted_one_is_recorded(
    hasat: Hasat, number: signal.Signals
) -> None:
    with hasat.stuck_housekeeping(), hasat.start("run", "housekeeping") as first:
        until(lambda: running_housekeeping(hasat) or first.poll() is not None, "the job to run")
        assert first.poll() is None, first.communicate()
        run_id = running_housekeeping(hasat)
        code, out, err = hasat.run("run", "housekeeping", "--json")
        assert code == 3
        assert json.loads(out)["outcome"] == "skipped"
        assert f"Run {run_id} of housekeeping has been going on since" in json.loads(out)["message"]
        assert f":{first.pid})" in json.loads(out)["message"]
        first.send_signal(number)
        _, err = first.communicate(timeout=30)
        assert (first.returncode, "Interrupted" in err) == (130, True)
    (bad,) = hasat.data("history", "--failed")
    assert (bad["id"], bad["outcome"]) == (run_id, "interrupted")
    assert hasat.data("run", "housekeeping")["outcome"] == "done"
