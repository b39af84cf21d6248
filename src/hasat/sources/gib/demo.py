"""The taxpayer lists in the demo: a publication every minute, some of them broken."""

from collections.abc import Mapping
from typing import Any, Final

from hasat.demo import DemoFolder, DemoPart, Loading, Scene
from hasat.jobs import Catalogue, Run
from hasat.jobs.queue import queue_run
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sim import Simulation
from hasat.sim.simulation import Faults
from hasat.sources.gib.simulator.server import GIB, PATHS
from hasat.sources.gib.sync.declaration import NAME
from hasat.store import Store

# Small enough for a start within seconds.
TAXPAYERS: Final = 4_000
# Half a list is published for five minutes, which leaves time to look at the run that the guard
# holds.
_HALF_LIST: Final = range(3, 8)
_TRUNCATED_LIST: Final = 10


def _simulation(folder: DemoFolder) -> Simulation:
    options = {"users": TAXPAYERS, "every": 60, "churn": 5, "began": folder.began.isoformat()}
    return Simulation(GIB, seed=1, options=options)


def _settings(_folder: DemoFolder, address: str) -> Mapping[str, Any]:
    return {f"{box.lower()}_list_url": f"{address}{path}" for box, path in PATHS.items()}


def _switch_faults(minute: int, faults: Faults) -> None:
    if minute == _HALF_LIST.start:
        faults.switch_on("half-list", list="pk")
    elif minute == _HALF_LIST.stop:
        faults.switch_off("half-list")
    elif minute == _TRUNCATED_LIST:
        faults.switch_on("truncated", times=1, list="pk")


async def _start(store: Store, _settings: Settings, catalogue: Catalogue) -> Run | None:
    await queue_run(store, catalogue, NAME)
    return None


SCENES: Final = (
    Scene(
        0,
        "/changes?dataset=einvoice",
        "/changes.json?dataset=einvoice",
        msg("Taxpayer lists change every minute"),
        msg(
            "GIB only publishes complete lists. Hasat computes the changes and numbers them "
            "without gaps, so a consumer can prove that it missed nothing."
        ),
    ),
    Scene(
        3,
        "/runs?job=gib_sync",
        "hasat gib runs",
        msg("Half a list arrives and waits for you"),
        msg(
            "More than a thousand taxpayers seem to be gone. The guard holds the run and shows "
            "what it would remove. Reject it; the next run is held too while the half list is "
            "published. After five minutes the complete list is back."
        ),
        every_hour=True,
        replay=range(_HALF_LIST.start, _HALF_LIST.stop + 1),
    ),
    Scene(
        10,
        "/runs?bad=1",
        "hasat jobs history --failed",
        msg("A truncated download"),
        msg(
            "The run fails with its reason and changes nothing. The next run downloads the list "
            "again."
        ),
        every_hour=True,
        replay=range(_TRUNCATED_LIST, _TRUNCATED_LIST + 1),
    ),
)

PART = DemoPart(
    _simulation,
    _settings,
    SCENES,
    Loading(msg("taxpayers"), TAXPAYERS, "SELECT count(*) FROM core.einvoice", _start),
    schedule={NAME: {"cron": "* * * * *"}},
    switch_faults=_switch_faults,
    fault_to_try="half-list",
)
