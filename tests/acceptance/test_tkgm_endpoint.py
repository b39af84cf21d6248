"""Endpoints of one's own in front of the registry, as processes, and a scan by name over them."""

import json
from pathlib import Path

import httpx2

from hasat.sim.tkgm import API
from house import House, eventually, free_port

AREA = "istanbul/kadikoy/tuglaci basi"


def _answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/", timeout=5).status_code == 401
    except httpx2.HTTPError:
        return False


def test_a_scan_over_endpoints_of_ones_own(house: House, tmp_path: Path) -> None:
    sim = free_port()
    registry = f"http://127.0.0.1:{sim}"
    house.environ["HASAT_TKGM_REGISTRY_URL"] = f"{registry}{API}"
    house.start("sim", "run", "tkgm", "--port", str(sim), "--option", "parcels=25")

    house.environ["HASAT_TKGM_ENDPOINT_API_KEY"] = "anahtar"
    house.environ["HASAT_TKGM_REGISTRY_PER_MINUTE"] = "6000"
    ports = {name: free_port() for name in ("kuzey", "guney")}
    for name, port in ports.items():
        settings = ["--set", f"tkgm.registry.egress={name}"]
        house.start(*settings, "tkgm", "endpoint", "--port", str(port))
    for port in ports.values():
        eventually(lambda port=port: _answers(port), "the endpoint answers")  # type: ignore[misc]

    workers = tmp_path / "workers.json"
    entries = [
        {"url": f"http://127.0.0.1:{port}", "daily": 1000, "min_interval_ms": 0}
        for port in ports.values()
    ]
    workers.write_text(json.dumps({"api_key": "anahtar", "workers": entries}))
    out = tmp_path / "parsel.geojson"
    told = house.json("tkgm", "scan", AREA, "--workers", str(workers), "--out", str(out))
    assert told["complete"]
    features = json.loads(out.read_text())["features"]
    assert len(features) == told["parcels"] >= 24

    spent = {
        quota["upstream"]: quota["spent"]
        for quota in (one["windows"] for one in house.json("quota")["upstreams"])
        if quota["upstream"].startswith("tkgm@")
    }
    points = sum(spent[f"tkgm@{name}"] for name in ports)
    requests = httpx2.get(f"{registry}/_sim").json()["requests"]
    asked = sum(count for path, count in requests.items() if "/parsel/" in path)
    assert told["questions"] <= asked <= points

    unknown = house.call("tkgm", "scan", "istanbul/kadıköyü", "--workers", str(workers))
    assert unknown.returncode == 1
    assert "Kadıköy" in unknown.stderr
