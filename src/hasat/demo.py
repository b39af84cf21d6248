"""The simulators of the demo in one process, with a script of faults.

One address serves /gib, /tkgm, /football and a webhook receiver. The script runs on `elapsed` time,
which stands still while the demo is off, so that the next start resumes it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import shapely
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from hasat.clock import Clock, system_clock
from hasat.sim.simulation import Simulation, serve_app
from hasat.sources.football.simulator.server import FOOTBALL
from hasat.sources.football.simulator.server import KEY as FOOTBALL_KEY
from hasat.sources.gib.simulator.server import GIB, PATHS
from hasat.sources.tkgm.simulator.server import KEY as TKGM_KEY
from hasat.sources.tkgm.simulator.server import TKGM

# Small enough for a start within seconds.
TAXPAYERS: Final = 4_000
PARCELS: Final = 320
LEAGUES: Final = 6
TEAMS: Final = 8
MATCHES: Final = LEAGUES * TEAMS * (TEAMS - 1)
TEMPO: Final = 60
ENDPOINTS: Final = 2
# At this tempo a day has 24 minutes and a round begins every 96, at noon of its first day. The
# first round has been played when the demo begins, the second kicks off a minute later.
SEASON_AGE: Final = timedelta(minutes=96 + 11)
_SEASON_LENGTH: Final = timedelta(minutes=96 * 2 * (TEAMS - 1))
# The faults, by minute of each hour. Half a list is published for five minutes, which leaves time
# to look at the run that the guard holds.
_HALF_LIST: Final = range(3, 8)
_TRUNCATED_LIST: Final = 10
# The webhook receiver is down while the guard has something to report.
_RECEIVER_DOWN: Final = _HALF_LIST
_MAX_ATTEMPTS: Final = 2
# The football API fails while the last matches of the first day are played.
_API_DOWN: Final = range(9, 16)
_HOUR: Final = 60
_PROGRESS_FILE: Final = "story.json"
AREA: Final = "town.geojson"
_RECEIVER: Final = "/bookkeeping"


@dataclass(frozen=True)
class DemoProgress:
    """How far the demo in a folder has come."""

    elapsed: timedelta
    season_start: datetime

    @classmethod
    def read(cls, folder: Path, now: datetime) -> "DemoProgress":
        """Read the progress in a folder; start a new season if the last one is over."""
        try:
            stored = json.loads((folder / _PROGRESS_FILE).read_text("utf-8"))
            elapsed = timedelta(seconds=stored["elapsed"])
            season = datetime.fromisoformat(stored["season_start"])
        except (OSError, ValueError, KeyError, TypeError):
            elapsed, season = timedelta(0), now - SEASON_AGE
        return cls(elapsed, now - SEASON_AGE if now - season > _SEASON_LENGTH else season)

    def write(self, folder: Path) -> None:
        document = {
            "elapsed": self.elapsed.total_seconds(),
            "season_start": self.season_start.isoformat(),
        }
        unfinished = folder / f"{_PROGRESS_FILE}.new"
        unfinished.write_text(json.dumps(document), "utf-8")
        unfinished.replace(folder / _PROGRESS_FILE)


def demo_settings(address: str, folder: Path, progress: DemoProgress) -> dict[str, Any]:
    """Return the settings of a Hasat that mirrors the simulators at an address."""
    leagues = [
        {"id": 39 + number, "season": progress.season_start.year, "name": f"League {number + 1}"}
        for number in range(LEAGUES)
    ]
    return {
        "gib": {f"{box.lower()}_list_url": f"{address}/gib{path}" for box, path in PATHS.items()},
        "tkgm": {"workers_file": str(folder / "workers.json"), "min_interval_ms": 8_000},
        "football": {
            "base_url": f"{address}/football",
            "api_key": FOOTBALL_KEY,
            "tracked_leagues": leagues,
        },
        "webhooks": {
            "enabled": True,
            "max_attempts": _MAX_ATTEMPTS,
            "private_networks": ["127.0.0.0/8"],
            "endpoints": [{"name": "bookkeeping", "url": f"{address}{_RECEIVER}"}],
        },
    }


def workers_file(address: str) -> dict[str, Any]:
    """Return the content of the workers.json with the simulated endpoints."""
    workers = [{"url": f"{address}/tkgm/e{n}", "daily": 5_000} for n in range(1, ENDPOINTS + 1)]
    return {"api_key": TKGM_KEY, "workers": workers}


class DemoUpstreams:
    """The simulators of the demo, and the script of their faults."""

    def __init__(self, folder: Path, progress: DemoProgress, clock: Clock = system_clock) -> None:
        self._folder = folder
        self._clock = clock
        self._season_start = progress.season_start
        self._began = clock() - progress.elapsed
        lists = {"users": TAXPAYERS, "every": 60, "churn": 5, "began": self._began.isoformat()}
        world = {
            "leagues": LEAGUES,
            "teams": TEAMS,
            "season_start": progress.season_start.isoformat(),
            "tempo": TEMPO,
            "corrected_share": 0.25,
            # In hours of match time: four minutes after kick-off at this tempo.
            "corrected_after": 4,
        }
        town = {"parcels": PARCELS, "endpoints": ENDPOINTS, "daily": 10_000}
        self.gib = Simulation(GIB, seed=1, options=lists)
        self.tkgm = Simulation(TKGM, seed=5, options=town)
        self.football = Simulation(FOOTBALL, seed=11, options=world)
        self._minute = self._elapsed_minutes()

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[str]:
        """Serve the simulators and run the script; yield the address."""
        self._write_area()
        app = Starlette(
            routes=[
                Mount(f"/{one.simulator.name}", one.app)
                for one in (self.gib, self.tkgm, self.football)
            ]
            + [Route(_RECEIVER, self._receive, methods=["POST"])]
        )
        script = asyncio.create_task(self._run_script(), name="script")
        try:
            async with serve_app(app, port) as address:
                yield address
        finally:
            script.cancel()
            await asyncio.wait({script})
            self._store_progress()

    async def _receive(self, request: Request) -> Response:
        """Accept a webhook, except in the minutes when the receiver is down."""
        await request.body()
        return Response(status_code=503 if self._minute % _HOUR in _RECEIVER_DOWN else 204)

    def advance(self) -> None:
        """Switch the faults of the minutes that have passed since the last call."""
        now = self._elapsed_minutes()
        for minute in range(self._minute + 1, now + 1):
            self._switch_faults(minute % _HOUR)
        self._minute = now

    def _switch_faults(self, minute: int) -> None:
        faults = self.gib.faults
        if minute == _HALF_LIST.start:
            faults.switch_on("half-list", list="pk")
        elif minute == _HALF_LIST.stop:
            faults.switch_off("half-list")
        elif minute == _API_DOWN.start:
            self.football.faults.switch_on("error", status=503)
        elif minute == _TRUNCATED_LIST:
            faults.switch_on("truncated", times=1, list="pk")
        elif minute == _API_DOWN.stop:
            self.football.faults.switch_off("error")

    async def _run_script(self) -> None:
        while True:
            self.advance()
            self._store_progress()
            await asyncio.sleep(5)

    def _store_progress(self) -> None:
        DemoProgress(self._clock() - self._began, self._season_start).write(self._folder)

    def _elapsed_minutes(self) -> int:
        return int((self._clock() - self._began) / timedelta(minutes=1))

    def _write_area(self) -> None:
        area = self.tkgm.inside.cadastre.area()
        feature: Mapping[str, Any] = {
            "type": "Feature",
            "properties": {"name": "the demo's town"},
            "geometry": json.loads(shapely.to_geojson(area)),
        }
        (self._folder / AREA).write_text(json.dumps(feature), "utf-8")
