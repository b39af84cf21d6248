"""`hasat serve --workers`: one port, several processes; one that dies is replaced."""

import json
import os
import random
import re
import signal
import socket
from pathlib import Path

import httpx2

from support.processes import Installation, eventually

WORKERS = 2
ROUTE = 'hasat_http_requests_total{method="GET",route="/problems/{code}",status="404"}'


def _workers(pid: int) -> set[int]:
    """Return the server processes of a supervisor."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = set()
    for child in map(int, listed):
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if b"serve" in words:
            found.add(child)
    return found


def _accepting(pids: set[int], port: int) -> set[int]:
    """Return those of the processes that have an open connection at the port."""
    local = f":{port:04X}"
    inodes = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(local) and words[3] == "01":
            inodes[f"socket:[{words[9]}]"] = words
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(link.readlink()) in inodes:
                    found.add(pid)
            except FileNotFoundError:
                continue
    return found


def _counted(installation: Installation) -> int:
    response = installation.get("/metrics")
    assert response is not None
    found = re.search(rf"^{re.escape(ROUTE)} (\S+)$", response.text, re.MULTILINE)
    return 0 if found is None else int(float(found[1]))


def _start(installation: Installation, *words: str) -> int:
    process = installation.start(*words)
    eventually(installation.ready, "it is ready")
    return process.pid


def test_processes_share_the_port_and_their_counts(installation: Installation) -> None:
    pid = _start(installation, "serve", "--workers", str(WORKERS))
    eventually(
        lambda: (
            f"serves at {installation.address} with {WORKERS} processes" in installation.output()
        ),
        "it says that it is ready",
    )
    workers = _workers(pid)
    assert len(workers) == WORKERS
    # Connections stay open, so that every process has some sooner or later.
    clients: list[httpx2.Client] = []

    def is_shared() -> bool:
        clients.append(httpx2.Client(base_url=installation.address))
        assert clients[-1].get("/problems/none").status_code == 404
        return _accepting(workers, installation.port) == workers

    eventually(is_shared, "every process has accepted a connection")
    for client in clients:
        client.close()
    for _ in range(2 * WORKERS):
        assert _counted(installation) == len(clients)


def test_a_killed_process_is_replaced_and_its_counts_stay(installation: Installation) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    pid = _start(installation, "serve", "--workers", str(WORKERS))
    eventually(lambda: len(_workers(pid)) == WORKERS, "all processes run")
    done = 0
    for _ in range(2):
        before = _workers(pid)
        victim = dice.choice(sorted(before))
        os.kill(victim, signal.SIGKILL)

        def is_replaced(before: set[int] = before, victim: int = victim) -> bool:
            nonlocal done
            # The others serve all the time; a connection that the victim had accepted is lost.
            response = installation.get("/problems/none")
            done += response is not None
            now = _workers(pid)
            return len(now) == WORKERS and victim not in now and bool(now - before)

        eventually(is_replaced, "the process is replaced")
        eventually(lambda: installation.get("/healthz") is not None, "it serves")
    counted = _counted(installation)
    assert done <= counted <= done + 2 * WORKERS
    assert _counted(installation) == counted


def test_a_signal_lets_open_requests_finish(installation: Installation) -> None:
    process = installation.start("serve", "--workers", str(WORKERS))
    eventually(installation.ready, "it is ready")
    body = json.dumps({"identifiers": ["1234567890"]}).encode()
    head = (
        "POST /api/v1/einvoice/batch HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", installation.port), timeout=60) as line:
        line.sendall(head + body[:5])
        eventually(
            lambda: _accepting(_workers(process.pid), installation.port), "a process has accepted"
        )
        process.send_signal(signal.SIGTERM)
        eventually(lambda: installation.get("/healthz") is None, "new connections are refused")
        line.sendall(body[5:])
        answer = b""
        while part := line.recv(65_536):
            answer += part
    # There is no list yet, which is an answer too.
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "unavailable"
    assert process.wait(60) == 0
