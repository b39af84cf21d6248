"""The demo's upstreams: all of them in one process, and the story that they tell.

Under one address: /gib, /tkgm and /football, and somebody who is told by webhook. The story's time
is `lived`: it stands still while the demo is off, so that the next start goes on where it was.
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

# Few enough for a start within seconds and for next to no work in between.
TAXPAYERS: Final = 4_000
PARCELS: Final = 320
LEAGUES: Final = 6
TEAMS: Final = 8
MATCHES: Final = LEAGUES * TEAMS * (TEAMS - 1)
TEMPO: Final = 60
ENDPOINTS: Final = 2
# At this tempo a day has 24 minutes and a round begins every 96, at noon of its first day. The
# first round has been played when the demo begins, the second kicks off a minute later.
BEFORE: Final = timedelta(minutes=96 + 11)
# A season is over after this long.
_SEASON: Final = timedelta(minutes=96 * 2 * (TEAMS - 1))
# What befalls the upstreams, by minute of each hour. For five minutes only half a list is
# published, so that there is time to look at the run that the guard holds.
_HALF_LIST: Final = range(3, 8)
_CUT_LIST: Final = 10
# Who is told by webhook does not listen while the guard has something to tell.
_DEAF: Final = _HALF_LIST
_MOST_ATTEMPTS: Final = 2
# The API of matches answers nothing while the last ones of the first day are played.
_SILENCE: Final = range(9, 16)
_HOUR: Final = 60
_NOTE: Final = "story.json"
AREA: Final = "town.geojson"
_RECEIVER: Final = "/bookkeeping"


@dataclass(frozen=True)
class Past:
    """What an earlier demo in this folder lived through."""

    lived: timedelta
    season_start: datetime

    @classmethod
    def read(cls, folder: Path, now: datetime) -> "Past":
        """The past that the folder tells of; a season that is over is followed by a new one."""
        try:
            told = json.loads((folder / _NOTE).read_text("utf-8"))
            lived = timedelta(seconds=told["lived"])
            season = datetime.fromisoformat(told["season_start"])
        except (OSError, ValueError, KeyError, TypeError):
            lived, season = timedelta(0), now - BEFORE
        return cls(lived, now - BEFORE if now - season > _SEASON else season)

    def write(self, folder: Path) -> None:
        told = {
            "lived": self.lived.total_seconds(),
            "season_start": self.season_start.isoformat(),
        }
        unfinished = folder / f"{_NOTE}.new"
        unfinished.write_text(json.dumps(told), "utf-8")
        unfinished.replace(folder / _NOTE)


def settings_for(address: str, folder: Path, past: Past) -> dict[str, Any]:
    """The settings of a Hasat that harvests the story's upstreams at an address."""
    leagues = [
        {"id": 39 + number, "season": past.season_start.year, "name": f"League {number + 1}"}
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
            "max_attempts": _MOST_ATTEMPTS,
            "private_networks": ["127.0.0.0/8"],
            "endpoints": [{"name": "bookkeeping", "url": f"{address}{_RECEIVER}"}],
        },
    }


def workers_of(address: str) -> dict[str, Any]:
    """The workers.json that names the story's endpoints."""
    workers = [{"url": f"{address}/tkgm/e{n}", "daily": 5_000} for n in range(1, ENDPOINTS + 1)]
    return {"api_key": TKGM_KEY, "workers": workers}


class Story:
    """The upstreams, and what happens to them."""

    def __init__(self, folder: Path, past: Past, clock: Clock = system_clock) -> None:
        self._folder = folder
        self._clock = clock
        self._past = past
        self._began = clock() - past.lived
        lists = {"users": TAXPAYERS, "every": 60, "churn": 5, "began": self._began.isoformat()}
        world = {
            "leagues": LEAGUES,
            "teams": TEAMS,
            "season_start": past.season_start.isoformat(),
            "tempo": TEMPO,
            "corrected_share": 0.25,
            # Hours of a match's own time: four minutes after it began here.
            "corrected_after": 4,
        }
        town = {"parcels": PARCELS, "endpoints": ENDPOINTS, "daily": 10_000}
        self.gib = Simulation(GIB, seed=1, options=lists)
        self.tkgm = Simulation(TKGM, seed=5, options=town)
        self.football = Simulation(FOOTBALL, seed=11, options=world)
        self._minute = self._lived_minutes()

    @asynccontextmanager
    async def told(self, port: int = 0) -> AsyncIterator[str]:
        """Serve the upstreams and let the story happen while the block lasts."""
        self._write_area()
        app = Starlette(
            routes=[
                Mount(f"/{one.simulator.name}", one.app)
                for one in (self.gib, self.tkgm, self.football)
            ]
            + [Route(_RECEIVER, self._receive, methods=["POST"])]
        )
        happening = asyncio.create_task(self._happen(), name="story")
        try:
            async with serve_app(app, port) as address:
                yield address
        finally:
            happening.cancel()
            await asyncio.wait({happening})
            self._remember()

    async def _receive(self, request: Request) -> Response:
        """Somebody who is told of every sync, and is away for some minutes of each hour."""
        await request.body()
        return Response(status_code=503 if self._minute % _HOUR in _DEAF else 204)

    def live_on(self) -> None:
        """What the minutes since the last look bring."""
        now = self._lived_minutes()
        for minute in range(self._minute + 1, now + 1):
            self._befall(minute % _HOUR)
        self._minute = now

    def _befall(self, minute: int) -> None:
        faults = self.gib.faults
        if minute == _HALF_LIST.start:
            faults.switch_on("half-list", list="pk")
        elif minute == _HALF_LIST.stop:
            faults.switch_off("half-list")
        elif minute == _SILENCE.start:
            self.football.faults.switch_on("error", status=503)
        elif minute == _CUT_LIST:
            faults.switch_on("truncated", times=1, list="pk")
        elif minute == _SILENCE.stop:
            self.football.faults.switch_off("error")

    async def _happen(self) -> None:
        while True:
            self.live_on()
            self._remember()
            await asyncio.sleep(5)

    def _remember(self) -> None:
        lived = self._clock() - self._began
        Past(lived, self._past.season_start).write(self._folder)

    def _lived_minutes(self) -> int:
        return int((self._clock() - self._began) / timedelta(minutes=1))

    def _write_area(self) -> None:
        area = self.tkgm.inside.cadastre.area()
        feature: Mapping[str, Any] = {
            "type": "Feature",
            "properties": {"name": "the demo's town"},
            "geometry": json.loads(shapely.to_geojson(area)),
        }
        (self._folder / AREA).write_text(json.dumps(feature), "utf-8")
