"""A real NATS server for a test, with JetStream, on a free port."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes import eventually, free_port

CHOICE = "HASAT_TEST_NATS"


def binary() -> str:
    """The server's program; without one the test is skipped, and says what to do."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/bin"))
    found = shutil.which(os.environ.get(CHOICE) or "nats-server", path=path)
    if found is None:
        pytest.skip(f"no NATS server: apt-get install nats-server, or set {CHOICE} to its path")
    return found


@contextmanager
def nats_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """Its address, while the block lasts; the folder keeps the streams for another one."""
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "nats.log"
    # A small limit, so that an over-large message is easy to make.
    config = folder / "nats.conf"
    config.write_text(f'max_payload: 65536\njetstream {{ store_dir: "{folder}" }}\n')
    process = subprocess.Popen(
        [binary(), "-c", str(config), "-a", "127.0.0.1", "-p", str(port), "-l", str(log)]
    )
    try:
        eventually(lambda: log.exists() and "Server is ready" in log.read_text(), "NATS is ready")
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)
