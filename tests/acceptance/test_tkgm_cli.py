"""The `hasat tkgm` commands over simulated endpoints."""

import json
import subprocess
from pathlib import Path

import httpx2
import pytest

from hasat.sources.tkgm.simulator.server import API, KEY
from support.processes import Installation, eventually


@pytest.fixture
def registry(hosted: Installation) -> str:
    """Return the address of a simulated registry with a small town."""
    hosted.start("sim", "run", "tkgm", "--option", "parcels=40", "--option", "endpoints=3")
    return str(eventually(lambda: _address(hosted.output()), "the simulator says where it is"))


def _address(said: str) -> str | None:
    return next((line for line in said.splitlines() if line.startswith("http://")), None)


def _declare(folder: Path, registry: str, daily: int = 2000) -> Path:
    path = folder / "workers.json"
    entries = [
        {"url": f"{registry}/e{number}", "daily": daily, "min_interval_ms": 0}
        for number in (1, 2, 3)
    ]
    path.write_text(json.dumps({"api_key": KEY, "workers": entries}))
    return path


def _area(folder: Path, registry: str) -> Path:
    path = folder / "alan.geojson"
    path.write_bytes(httpx2.get(f"{registry}{API}/idariYapi/mahalleListe/521").content)
    return path


def _run(installation: Installation, *words: str) -> tuple[int, dict[str, object], str]:
    done: subprocess.CompletedProcess[str] = installation.call(*words, "--json")
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_a_scan_resumes_and_is_exported(
    hosted: Installation, registry: str, tmp_path: Path
) -> None:
    area, workers = _area(tmp_path, registry), _declare(tmp_path, registry)
    words = ["tkgm", "scan", str(area), "--workers", str(workers)]
    code, first, _ = _run(hosted, *words, "--max-queries", "20")
    assert code == 1
    assert not first["complete"]
    out = tmp_path / "parsel.geojson"
    code, done, _ = _run(hosted, *words, "--out", str(out))
    assert code == 0
    assert done["complete"]
    assert done["scan"] == first["scan"]
    assert done["knownBefore"] == first["questions"]
    features = json.loads(out.read_text())["features"]
    assert len(features) == done["exported"] == done["parcels"]
    assert {"mahalleId", "adaNo", "parselNo", "fetchedAt"} <= features[0]["properties"].keys()

    workers_shown = json.loads(hosted.call("tkgm", "workers", "--json").stdout)
    assert sum(one["successes"] for one in workers_shown) > 0
    assert all(one["seconds"] for one in workers_shown if one["successes"])

    lon, lat = features[0]["geometry"]["coordinates"][0][0]
    table = tmp_path / "parsel.csv"
    code, exported, _ = _run(hosted, "tkgm", "export", str(table), "--turkish")
    assert (code, exported["parcels"]) == (0, len(features))
    assert table.read_bytes().startswith(b"\xef\xbb\xbf")
    assert abs(lat) > 1
    assert abs(lon) > 1


def test_exit_codes_of_parcel_and_scan(hosted: Installation, registry: str, tmp_path: Path) -> None:
    workers = _declare(tmp_path, registry, daily=20)
    code, _, errors = _run(hosted, "tkgm", "parcel", "36.5", "44.5", "--workers", str(workers))
    assert code == 1
    assert "no parcel" in errors
    code, _, errors = _run(hosted, "tkgm", "parcel", "--workers", str(workers))
    assert code == 2
    assert "LAT and LON" in errors
    area = _area(tmp_path, registry)
    words = ["tkgm", "scan", str(area), "--workers", str(workers)]
    code, _, errors = _run(hosted, *words)
    assert code == 2
    assert "--yes" in errors
    code, result, _ = _run(hosted, *words, "--yes")
    assert code == 5
    assert not result["complete"]
    assert result["message"]
    code, _, errors = _run(hosted, "tkgm", "scan", str(area))
    assert code == 2
    assert "workers.json" in errors
