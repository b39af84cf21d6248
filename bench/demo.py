"""Measure the processor time and memory of the demo once its data is loaded.

Starts `hasat demo` in a temporary folder, waits until the data is loaded, then measures for three
minutes. Run: .venv/bin/python bench/demo.py [--seconds 180] [--json]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

MAX_CORE_PERCENT = 10.0
MAX_MEGABYTES = 700.0
_TIMEOUT_SECONDS = 1200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--port", type=int, default=8798)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hasat-bench-demo-") as folder:
        output = Path(folder) / "output.txt"
        home = Path(folder) / "demo"
        with output.open("w") as log:
            demo = subprocess.Popen(
                [sys.executable, "-m", "hasat", "--set", f"home={home}", "demo"],
                env=os.environ | {"HASAT_PORT": str(arguments.port)},
                stdout=log,
                stderr=log,
            )
        try:
            _wait_until_loaded(demo, output)
            percent, megabytes, processes = _measure(demo.pid, home, arguments.seconds)
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.wait()
    if arguments.json:
        found = {"core_percent": percent, "megabytes": megabytes, "processes": processes}
        print(json.dumps(found))
    else:
        print(f"processor: {percent:5.1f} % of a core (limit: {MAX_CORE_PERCENT:.0f} %)")
        print(f"memory:    {megabytes:5.0f} MB in {processes} processes", end=" ")
        print(f"(limit: {MAX_MEGABYTES:.0f} MB); shared memory is counted once")
    return int(percent > MAX_CORE_PERCENT or megabytes > MAX_MEGABYTES)


def _wait_until_loaded(demo: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while "\nLoaded " not in output.read_text():
        if demo.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(output.read_text())
        time.sleep(0.5)


def _measure(root: int, home: Path, seconds: float) -> tuple[float, float, int]:
    """Return percent of a core, megabytes and the number of processes."""
    before = _processor_seconds(root, home)
    time.sleep(seconds)
    after = _processor_seconds(root, home)
    spent = sum(value - before.get(pid, 0.0) for pid, value in after.items())
    percent = 100 * spent / seconds
    return percent, *_megabytes(root, home)


def _processor_seconds(root: int, home: Path) -> dict[int, float]:
    found = {}
    for process in _processes(root, home):
        try:
            # Includes children that have exited, such as those of the database server.
            times = process.cpu_times()
            exited = times.children_user + times.children_system
            found[process.pid] = times.user + times.system + exited
        except psutil.Error:
            continue
    return found


def _megabytes(root: int, home: Path) -> tuple[float, int]:
    total, count = 0.0, 0
    for process in _processes(root, home):
        try:
            total += process.memory_full_info().pss / 1e6
            count += 1
        except psutil.Error:
            continue
    return total, count


def _processes(root: int, home: Path) -> list[psutil.Process]:
    """Return the processes of the demo and of its database, which is not its child."""
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
