"""`hasat tkgm endpoint` processes in front of the registry, and a scan by name over them."""

import json
import subprocess
import sys
from pathlib import Path

import httpx2
from shapely.geometry import shape

from hasat.sources.tkgm.simulator.server import API
from support.processes import TIMEOUT_SECONDS, Installation, eventually, free_port

PROGRAM = """
import json, sys
from hasat.sources.tkgm import TKGMClient
client = TKGMClient("workers.json")
print(json.dumps(client.get_batch(json.loads(sys.argv[1]), fresh=True)["stats"]))
"""
AREA = "istanbul/kadikoy/tuglaci basi"


def _is_serving(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/", timeout=5).status_code == 401
    except httpx2.HTTPError:
        return False


def test_a_scan_over_own_endpoints(hosted: Installation, tmp_path: Path) -> None:
    sim = free_port()
    registry = f"http://127.0.0.1:{sim}"
    hosted.environ["HASAT_TKGM_REGISTRY_URL"] = f"{registry}{API}"
    hosted.start("sim", "run", "tkgm", "--port", str(sim), "--option", "parcels=25")

    hosted.environ["HASAT_TKGM_ENDPOINT_API_KEY"] = "anahtar"
    hosted.environ["HASAT_TKGM_REGISTRY_PER_MINUTE"] = "6000"
    ports = {name: free_port() for name in ("kuzey", "guney")}
    for name, port in ports.items():
        settings = ["--set", f"tkgm.registry.egress={name}"]
        hosted.start(*settings, "tkgm", "endpoint", "--port", str(port))
    for port in ports.values():
        eventually(lambda port=port: _is_serving(port), "the endpoint answers")  # type: ignore[misc]

    workers = tmp_path / "workers.json"
    entries = [
        {"url": f"http://127.0.0.1:{port}", "daily": 1000, "min_interval_ms": 0}
        for port in ports.values()
    ]
    workers.write_text(json.dumps({"api_key": "anahtar", "workers": entries}))
    out = tmp_path / "parsel.geojson"
    result = hosted.json("tkgm", "scan", AREA, "--workers", str(workers), "--out", str(out))
    assert result["complete"]
    features = json.loads(out.read_text())["features"]
    assert len(features) == result["parcels"] >= 24

    inside = [shape(one["geometry"]).representative_point() for one in features[:3]]
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([(place.y, place.x) for place in inside])],
        env=hosted.environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert program.returncode == 0, program.stderr
    assert json.loads(program.stdout) == {"found": 3, "empty": 0, "error": 0, "total": 3}

    spent = {
        quota["upstream"]: quota["spent"]
        for quota in (one["windows"] for one in hosted.json("quota")["upstreams"])
        if quota["upstream"].startswith("tkgm@")
    }
    points = sum(spent[f"tkgm@{name}"] for name in ports)
    requests = httpx2.get(f"{registry}/_sim").json()["requests"]
    received = sum(count for path, count in requests.items() if "/parsel/" in path)
    assert result["questions"] + 3 <= received <= points

    unknown = hosted.call("tkgm", "scan", "istanbul/kadıköyü", "--workers", str(workers))
    assert unknown.returncode == 1
    assert "Kadıköy" in unknown.stderr
