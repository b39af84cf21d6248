"""`hasat up`: it starts, serves, restarts killed processes, reports errors and ends."""

import asyncio
import json
import os
import random
import signal
import socket
import sys
from pathlib import Path

import pytest

from hasat.console.supervisor import Supervisor
from hasat.errors import HasatError
from support.processes import Installation, eventually


def _children(pid: int) -> dict[str, int]:
    """Return the pids of the roles among the children of a process."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = {}
    for child in map(int, listed):
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        found |= {role: child for role in ("serve", "worker") if role.encode() in words}
    return found


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_up_serves_runs_jobs_and_ends_cleanly(installation: Installation) -> None:
    up = installation.start("up")
    eventually(
        lambda: f"ready at {installation.address}" in installation.output(),
        "it says that it is ready",
    )
    status = installation.get("/api/v1/status")
    assert status is not None
    assert status.json()["database"]["embedded"] is True
    assert "housekeeping" in [job["name"] for job in status.json()["jobs"]]
    run = installation.call("jobs", "run", "housekeeping", "--json")
    assert json.loads(run.stdout)["outcome"] == "nothing"
    assert run.returncode == 3
    up.send_signal(signal.SIGTERM)
    assert up.wait(60) == 0
    # The last process stopped the database; the next command starts it again.
    assert installation.json("jobs", "history")[0]["job"] == "housekeeping"


def test_killed_processes_are_restarted_and_orphans_end(installation: Installation) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    up = installation.start("up")
    eventually(installation.ready, "it is ready")
    eventually(lambda: len(_children(up.pid)) == 2, "both roles run")
    for role in dice.sample(["serve", "worker"], 2):
        old = _children(up.pid)[role]
        os.kill(old, signal.SIGKILL)
        eventually(
            lambda role=role, old=old: _children(up.pid).get(role) not in (None, old),
            f"{role} is started again",
        )
    eventually(installation.ready, "it is ready again")
    eventually(lambda: len(_children(up.pid)) == 2, "both roles run")
    orphans = list(_children(up.pid).values())
    up.kill()
    up.wait()
    eventually(lambda: not any(map(_alive, orphans)), "the children noticed and ended")
    installation.start("up")
    eventually(installation.ready, "the next start is clean")


_CHILD = """
import os, pathlib, signal, socket, sys, time
parent = socket.socket(fileno=int(os.environ["HASAT_PARENT_FD"]))
starts = pathlib.Path(sys.argv[1])
starts.write_text(starts.read_text() + "x")
if len(starts.read_text()) <= 2:
    if sys.argv[2] == "ready":
        parent.send(b"r")
    os.kill(os.getpid(), signal.SIGKILL)
parent.send(b"r")
time.sleep(600)
"""


@pytest.mark.anyio
@pytest.mark.parametrize("when", ["ready", "starting"])
async def test_a_process_that_is_killed_as_it_gets_ready_is_started_again(
    tmp_path: Path, when: str
) -> None:
    starts = tmp_path / "starts"
    starts.touch()
    supervisor = Supervisor({"child": [sys.executable, "-c", _CHILD, str(starts), when]})
    await supervisor.start()
    try:
        async with asyncio.timeout(60):
            while starts.read_text() != "xxx":  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
            await supervisor.wait_ready()
        assert not supervisor.ending
    finally:
        supervisor.drain()
        await supervisor.wait_ended()


@pytest.mark.anyio
async def test_a_process_that_cannot_start_ends_the_supervisor() -> None:
    supervisor = Supervisor({"child": [sys.executable, "-c", "raise SystemExit(7)"]})
    await supervisor.start()
    async with asyncio.timeout(60):
        await supervisor.wait_ending()
    with pytest.raises(HasatError, match=r"could not start \(exit code 7\)"):
        await supervisor.wait_ended()


def test_a_second_signal_stops_at_once(installation: Installation) -> None:
    up = installation.start("up")
    eventually(installation.ready, "it is ready")
    up.send_signal(signal.SIGINT)
    up.send_signal(signal.SIGTERM)
    assert up.wait(60) in (0, 130)


def test_a_taken_port_is_reported_in_one_sentence(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", installation.port)):
        done = installation.call("up")
    assert done.returncode == 1
    assert f"Port {installation.port} on 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_public_address_needs_a_key_first(installation: Installation) -> None:
    refused = installation.call("up", "--host", "0.0.0.0")  # noqa: S104 - refused before it binds
    assert refused.returncode == 2
    assert "hasat keys create" in refused.stderr
    key = installation.json("keys", "create", "tester")["key"]
    installation.environ["HASAT_SERVE_ALLOWED_HOSTS"] = "hasat.example"
    installation.start("serve")
    eventually(installation.ready, "it serves")
    status = installation.get("/api/v1/status")
    assert status is not None
    assert status.status_code == 401
    assert key not in installation.output()


def test_an_unreachable_database_is_reported_in_one_sentence(installation: Installation) -> None:
    installation.environ["HASAT_DATABASE_URL"] = "postgresql://nobody:geheim@127.0.0.1:1/none"
    done = installation.call("jobs", "list")
    assert done.returncode == 1
    assert "PostgreSQL cannot be reached" in done.stderr
    assert "geheim" not in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_passes_a_new_installation_and_names_a_wrong_setting(
    installation: Installation,
) -> None:
    findings = installation.json("doctor")
    assert {finding["grade"] for finding in findings} <= {"ok", "warning"}
    installation.environ["HASAT_SERVE_PRT"] = "1"
    done = installation.call("doctor")
    assert done.returncode == 1
    assert "HASAT_SERVE_PORT" in done.stdout
