"""`hasat up` as a person lives with it: starts, answers, survives, says what is wrong, ends."""

import asyncio
import json
import os
import random
import signal
import socket
import sys
from pathlib import Path

import pytest

from hasat.cli.supervisor import Supervisor
from hasat.errors import HasatError
from support.house import House, eventually


def _children(pid: int) -> dict[str, int]:
    """The roles among a process's children; Linux tells them in /proc."""
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


def test_up_answers_runs_jobs_and_ends_cleanly(house: House) -> None:
    up = house.start("up")
    eventually(lambda: f"ready at {house.address}" in house.said(), "it says that it is ready")
    status = house.get("/api/v1/status")
    assert status is not None
    assert status.json()["database"]["embedded"] is True
    assert "housekeeping" in [job["name"] for job in status.json()["jobs"]]
    run = house.call("jobs", "run", "housekeeping", "--json")
    assert json.loads(run.stdout)["outcome"] == "nothing"
    assert run.returncode == 3
    up.send_signal(signal.SIGTERM)
    assert up.wait(60) == 0
    # The last one to leave stopped the database: the next command starts it again by itself.
    assert house.json("jobs", "history")[0]["job"] == "housekeeping"


def test_whatever_is_killed_comes_back_or_ends(house: House) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    up = house.start("up")
    eventually(house.ready, "it is ready")
    eventually(lambda: len(_children(up.pid)) == 2, "both roles run")
    for role in dice.sample(["serve", "worker"], 2):
        old = _children(up.pid)[role]
        os.kill(old, signal.SIGKILL)
        eventually(
            lambda role=role, old=old: _children(up.pid).get(role) not in (None, old),
            f"{role} is started again",
        )
    eventually(house.ready, "it is ready again")
    eventually(lambda: len(_children(up.pid)) == 2, "both roles run")
    orphans = list(_children(up.pid).values())
    up.kill()
    up.wait()
    eventually(lambda: not any(map(_alive, orphans)), "the children noticed and ended")
    house.start("up")
    eventually(house.ready, "the next start is clean")


_CHILD = """
import os, pathlib, signal, socket, sys, time
line = socket.socket(fileno=int(os.environ["HASAT_PARENT_FD"]))
lives = pathlib.Path(sys.argv[1])
lives.write_text(lives.read_text() + "x")
if len(lives.read_text()) <= 2:
    if sys.argv[2] == "said":
        line.send(b"r")
    os.kill(os.getpid(), signal.SIGKILL)
line.send(b"r")
time.sleep(600)
"""


@pytest.mark.anyio
@pytest.mark.parametrize("when", ["said", "unsaid"])
async def test_a_process_that_is_killed_as_it_gets_ready_is_started_again(
    tmp_path: Path, when: str
) -> None:
    lives = tmp_path / "lives"
    lives.touch()
    supervisor = Supervisor({"child": [sys.executable, "-c", _CHILD, str(lives), when]})
    await supervisor.start()
    try:
        async with asyncio.timeout(60):
            while lives.read_text() != "xxx":  # noqa: ASYNC110 - another process writes it
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


def test_a_second_signal_stops_at_once(house: House) -> None:
    up = house.start("up")
    eventually(house.ready, "it is ready")
    up.send_signal(signal.SIGINT)
    up.send_signal(signal.SIGTERM)
    assert up.wait(60) in (0, 130)


def test_a_taken_port_is_said_in_one_sentence(house: House) -> None:
    with socket.create_server(("127.0.0.1", house.port)):
        done = house.call("up")
    assert done.returncode == 1
    assert f"Port {house.port} on 127.0.0.1 is taken" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_for_others_needs_a_key_first(house: House) -> None:
    refused = house.call("up", "--host", "0.0.0.0")  # noqa: S104 - refused before it binds
    assert refused.returncode == 2
    assert "hasat keys create" in refused.stderr
    key = house.json("keys", "create", "tester")["key"]
    house.environ["HASAT_SERVE_ALLOWED_HOSTS"] = "hasat.example"
    house.start("serve")
    eventually(house.ready, "it serves")
    status = house.get("/api/v1/status")
    assert status is not None
    assert status.status_code == 401
    assert key not in house.said()


def test_a_database_that_is_away_is_said_in_one_sentence(house: House) -> None:
    house.environ["HASAT_DATABASE_URL"] = "postgresql://nobody:geheim@127.0.0.1:1/none"
    done = house.call("jobs", "list")
    assert done.returncode == 1
    assert "PostgreSQL cannot be reached" in done.stderr
    assert "geheim" not in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_finds_nothing_wrong_in_a_new_house_and_names_what_is(house: House) -> None:
    findings = house.json("doctor")
    assert {finding["grade"] for finding in findings} <= {"ok", "warning"}
    house.environ["HASAT_SERVE_PRT"] = "1"
    done = house.call("doctor")
    assert done.returncode == 1
    assert "HASAT_SERVE_PORT" in done.stdout
