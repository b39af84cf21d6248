"""The town in the demo, scanned parcel by parcel."""

import json
from collections.abc import Mapping
from typing import Any, Final

import shapely

from hasat.demo import DemoFolder, DemoPart, Loading, Scene
from hasat.jobs import Catalogue, Run
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import list_runs
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sim import Simulation
from hasat.sources.tkgm.simulator.server import KEY, TKGM
from hasat.sources.tkgm.source import NAME
from hasat.store import Store

PARCELS: Final = 320
_ENDPOINTS: Final = 2
_AREA: Final = "town.geojson"


def _simulation(folder: DemoFolder) -> Simulation:
    """Return the town, and write its area for the scan."""
    options = {"parcels": PARCELS, "endpoints": _ENDPOINTS, "daily": 10_000}
    simulation = Simulation(TKGM, seed=5, options=options)
    feature: Mapping[str, Any] = {
        "type": "Feature",
        "properties": {"name": "the demo's town"},
        "geometry": json.loads(shapely.to_geojson(simulation.inside.cadastre.area())),
    }
    (folder.path / _AREA).write_text(json.dumps(feature), "utf-8")
    return simulation


def _settings(folder: DemoFolder, address: str) -> Mapping[str, Any]:
    workers = [{"url": f"{address}/e{n}", "daily": 5_000} for n in range(1, _ENDPOINTS + 1)]
    file = folder.path / "workers.json"
    file.write_text(json.dumps({"api_key": KEY, "workers": workers}), "utf-8")
    return {"workers_file": str(file), "min_interval_ms": 8_000}


async def _start(store: Store, settings: Settings, catalogue: Catalogue) -> Run | None:
    """Return the run that scans the town, from an earlier start if that did not fail."""
    town = {"area": json.loads((settings.home / _AREA).read_text("utf-8"))}
    for earlier in await list_runs(store, job=NAME):
        if earlier.params == town and earlier.outcome in {None, "done"}:
            return earlier
    return await queue_run(store, catalogue, NAME, town)


SCENES: Final = (
    Scene(
        0,
        "/parcels",
        "/changes.json?dataset=parcels",
        msg("A town is scanned, parcel by parcel"),
        msg(
            "TKGM answers one point per request, with a daily limit. Watch the map fill: the scan "
            "asks first where most is unknown, and resumes after any stop."
        ),
    ),
)

PART = DemoPart(
    _simulation,
    _settings,
    SCENES,
    Loading(msg("parcels"), PARCELS, "SELECT count(DISTINCT key) FROM tkgm.told", _start),
)
