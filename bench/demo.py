"""What the demo costs when nothing is left to harvest: processor and memory of all its processes.

Starts `hasat demo` in a folder of its own, waits until the first harvest is over, then looks for
three minutes. Run: .venv/bin/python bench/demo.py [--seconds 180]
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ALLOWED_CORE_PERCENT = 10.0
ALLOWED_MEGABYTES = 700.0
_PATIENCE_SECONDS = 1200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--port", type=int, default=8798)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hasat-bench-demo-") as folder:
        said = Path(folder) / "said.txt"
        home = Path(folder) / "demo"
        with said.open("w") as log:
            demo = subprocess.Popen(
                [sys.executable, "-m", "hasat", "--set", f"home={home}", "demo"],
                env=os.environ | {"HASAT_PORT": str(asked.port)},
                stdout=log,
                stderr=log,
            )
        try:
            _until_harvested(demo, said)
            return _measure(demo.pid, home, asked.seconds)
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.wait()


def _until_harvested(demo: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while "Harvested:" not in said.read_text():
        if demo.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(said.read_text())
        time.sleep(0.5)


def _measure(root: int, home: Path, seconds: float) -> int:
    before = _processor_seconds(root, home)
    time.sleep(seconds)
    after = _processor_seconds(root, home)
    spent = sum(value - before.get(pid, 0.0) for pid, value in after.items())
    percent = 100 * spent / seconds
    megabytes, processes = _megabytes(root, home)
    print(f"processor: {percent:5.1f} % of a core (allowed: {ALLOWED_CORE_PERCENT:.0f} %)")
    print(f"memory:    {megabytes:5.0f} MB in {processes} processes", end=" ")
    print(f"(allowed: {ALLOWED_MEGABYTES:.0f} MB); what processes share is counted once")
    return int(percent > ALLOWED_CORE_PERCENT or megabytes > ALLOWED_MEGABYTES)


def _processor_seconds(root: int, home: Path) -> dict[int, float]:
    found = {}
    for process in _family(root, home):
        try:
            # A server process counts those of its children that are gone.
            times = process.cpu_times()
            gone = times.children_user + times.children_system
            found[process.pid] = times.user + times.system + gone
        except psutil.Error:
            continue
    return found


def _megabytes(root: int, home: Path) -> tuple[float, int]:
    total, count = 0.0, 0
    for process in _family(root, home):
        try:
            total += process.memory_full_info().pss / 1e6
            count += 1
        except psutil.Error:
            continue
    return total, count


def _family(root: int, home: Path) -> list[psutil.Process]:
    """The demo's processes and those of its database, which is nobody's child."""
    demo = psutil.Process(root)
    postmaster = int((home / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    server = psutil.Process(postmaster)
    return [
        demo,
        *demo.children(recursive=True),
        server,
        *server.children(recursive=True),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
