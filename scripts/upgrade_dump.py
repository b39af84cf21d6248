"""Store a database made by the code of a revision in tests/upgrade/REVISION.

The code runs against its own simulators: two syncs of gib, a scan of tkgm, football jobs, an API
key, a webhook with deliveries, archives. With the backup it stores what the API reported
(facts.json) and the lists for one more sync (pk.zip, gb.zip).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2

PROJECT = Path(__file__).parents[1]
DUMPS = PROJECT / "tests" / "upgrade"
WAIT_SECONDS = 60.0
HELD = 4
LEAGUE = 39
FOOTBALL_JOBS = (
    "bootstrap_leagues",
    "fixtures_backfill_league_season",
    "fixture_details_backfill_season",
    "standings_backfill_league_season",
    "top_scorers_daily",
)


class Installation:
    """A HASAT_HOME used by the code of a revision."""

    def __init__(self, folder: Path, revision: str) -> None:
        self.folder = folder
        packed = subprocess.run(
            ["git", "archive", revision, "src", "pyproject.toml"],
            cwd=PROJECT,
            check=True,
            capture_output=True,
        )
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
        declare_entry_points(folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HASAT")}
        self.environ = clean | {
            "PYTHONPATH": str(folder / "src"),
            "HASAT_HOME": str(folder / "home"),
            "HASAT_PORT": str(port),
            "HASAT_WEBHOOKS_ENABLED": "true",
            "HASAT_WEBHOOKS_HTTP_ENABLED": "true",
            "HASAT_WEBHOOKS_HTTP_URL": "http://127.0.0.1:9/unreachable",
            "HASAT_WEBHOOKS_PRIVATE_NETWORKS": '["127.0.0.0/8"]',
        }
        # Disable the schedule, so that only the jobs started here run, on loopback.
        jobs = self.json("jobs", "list")
        off = {job["name"]: {"enabled": False} for job in jobs}
        self.environ["HASAT_JOBS_SCHEDULE"] = json.dumps(off)

    def run(self, *words: str, expect: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hasat", *words],
            env=self.environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != expect:
            sys.exit(
                f"hasat {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
            )
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def get(self, path: str, **parameters: Any) -> Any:
        return httpx2.get(f"{self.address}{path}", params=parameters).json()

    @contextmanager
    def running(self, *words: str) -> Iterator[Path]:
        """Run a command during the block and yield the file with its output."""
        printed = self.folder / f"{'-'.join(words[:3])}.txt"
        with printed.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "hasat", *words],
                env=self.environ,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield printed
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)

    @contextmanager
    def simulator(self, *words: str) -> Iterator[str]:
        with self.running("sim", *words) as printed:
            yield until(
                lambda: next(iter(printed.read_text().split("\n")[:-1]), None), "it listens"
            )


def declare_entry_points(folder: Path) -> None:
    """Give the code its own entry points: those of the installed version name other modules."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"console_scripts": project["scripts"], **project.get("entry-points", {})}
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in names.items()))
    ]
    metadata = folder / "src" / "hasat-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hasat\nVersion: 0\n", "utf-8")
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except httpx2.HTTPError:
            pass
        time.sleep(0.1)
    sys.exit(f"Timed out: {what}.")


def sync_gib(hasat: Installation, lists: Path) -> None:
    """Commit two publications, let the guard hold a broken one, and store the next."""
    options = ("--users", "60", "--every", "3600", "--churn", "500")
    with hasat.simulator("gib", *options) as upstream:
        path = f"{upstream}/EFaturaMerkez/newUser"
        addresses = {kind: f"{path}{kind.title()}Listxml.zip" for kind in ("pk", "gb")}
        sync = ["gib", "sync", "--pk", addresses["pk"], "--gb", addresses["gb"]]
        for _ in range(2):
            hasat.run(*sync)
            httpx2.post(f"{upstream}/_sim/clock", json={"advance": 3600})
        httpx2.put(f"{upstream}/_sim/faults/half-list")
        hasat.run(*sync, expect=HELD)
        httpx2.delete(f"{upstream}/_sim/faults/half-list")
        for kind, address in addresses.items():
            (lists / f"{kind}.zip").write_bytes(httpx2.get(address).content)


def scan_tkgm(hasat: Installation) -> None:
    options = ("--option", "parcels=12", "--option", "endpoints=1")
    with hasat.simulator("run", "tkgm", *options) as upstream:
        area = httpx2.get(f"{upstream}/megsiswebapi.v3/api/idariYapi/mahalleListe/521").content
        (hasat.folder / "area.geojson").write_bytes(area)
        endpoint = {"url": f"{upstream}/e1", "daily": 2000, "min_interval_ms": 0}
        declared = {"api_key": "sim-key", "workers": [endpoint]}
        (hasat.folder / "workers.json").write_text(json.dumps(declared))
        hasat.run("tkgm", "scan", "area.geojson", "--workers", "workers.json")


def run_football(hasat: Installation) -> None:
    began = datetime.now(UTC) - timedelta(days=100)
    options = ("leagues=1", "teams=4", f"season_start={began.date()}", "minute=100000")
    given = [word for option in options for word in ("--option", option)]
    with hasat.simulator("run", "football", *given) as upstream:
        tracked = [{"id": LEAGUE, "season": began.year}]
        hasat.environ |= {
            "HASAT_FOOTBALL_BASE_URL": upstream,
            "HASAT_FOOTBALL_API_KEY": "sim-key",
            "HASAT_FOOTBALL_TRACKED_LEAGUES": json.dumps(tracked),
        }
        for job in FOOTBALL_JOBS:
            hasat.run("jobs", "run", job)


def facts_of(hasat: Installation) -> dict[str, Any]:
    """Return what the API and the commands report, for comparison after the upgrade."""
    paths = hasat.get("/openapi.json")["paths"]
    names = sorted(path.split("/")[3] for path in paths if path.endswith("/digest"))
    filled = [name for name in names if "cursor" in hasat.get(f"/api/v1/{name}/digest")]
    return {
        "datasets": {name: _dataset(hasat, name) for name in filled},
        "key": hasat.json("keys", "create", "reader"),
        "runs": [[run["id"], run["job"], run["outcome"]] for run in hasat.json("jobs", "history")],
        "deliveries": [one["messageId"] for one in hasat.json("webhooks", "deliveries")],
    }


def _dataset(hasat: Installation, name: str) -> dict[str, Any]:
    changes = f"/api/v1/{name}/changes"
    first = hasat.get(changes, limit=1)
    rest = hasat.get(changes, after=first["next"], limit=1000, include="record")["changes"]
    records = [[one["seq"], one["changeType"], one["key"], one["body"]] for one in rest]
    return {
        **hasat.get(f"/api/v1/{name}/digest"),
        "floor": first["floor"],
        "follower": first["next"],
        "changes": len(records),
        "changes_sha256": sha256(json.dumps(records, sort_keys=True).encode()).hexdigest(),
    }


def main() -> None:
    [given] = sys.argv[1:]
    words = ["git", "rev-parse", "--short=7", given]
    found = subprocess.run(words, cwd=PROJECT, check=True, capture_output=True, text=True)
    revision = found.stdout.strip()
    into = DUMPS / revision
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        hasat = Installation(Path(folder), revision)
        with hasat.running("up"):
            until(lambda: hasat.get("/readyz").get("status"), "the API is ready")
            sync_gib(hasat, into)
            scan_tkgm(hasat)
            run_football(hasat)
            until(lambda: hasat.json("webhooks", "deliveries"), "there is a delivery")
            facts = facts_of(hasat)
        hasat.run("db", "backup", str(into / "backup.dump"))
    (into / "facts.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False), "utf-8")
    for name, fact in facts["datasets"].items():
        print(f"{name}: {fact['count']} records, {fact['head']} changes")


if __name__ == "__main__":
    main()
