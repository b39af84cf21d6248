"""The simulators of the demo in one process, with a script of faults.

One address serves /<source> for each source, and a webhook receiver. The script runs on `elapsed`
time, which stands still while the demo is off, so that the next start resumes it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from hasat.clock import Clock, system_clock
from hasat.demo.part import RECEIVER_DOWN, DemoFolder, Scene, demo_parts
from hasat.demo.scenes import REPLAY_PATH, all_scenes
from hasat.sim.simulation import serve_app

_MAX_ATTEMPTS: Final = 2
_HOUR: Final = 60
_PROGRESS_FILE: Final = "story.json"
_RECEIVER: Final = "/bookkeeping"


@dataclass(frozen=True)
class DemoProgress:
    """How far the demo in a folder has come."""

    elapsed: timedelta

    @classmethod
    def read(cls, folder: Path) -> "DemoProgress":
        """Read the progress in a folder; a demo without progress is at its start."""
        try:
            stored = json.loads((folder / _PROGRESS_FILE).read_text("utf-8"))
            return cls(timedelta(seconds=stored["elapsed"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(timedelta(0))

    def write(self, folder: Path) -> None:
        unfinished = folder / f"{_PROGRESS_FILE}.new"
        unfinished.write_text(json.dumps({"elapsed": self.elapsed.total_seconds()}), "utf-8")
        unfinished.replace(folder / _PROGRESS_FILE)


def demo_settings(address: str, folder: DemoFolder) -> dict[str, Any]:
    """Return the settings of a Hasat that mirrors the simulators at an address."""
    sources = {
        name: dict(part.settings(folder, f"{address}/{name}"))
        for name, part in demo_parts().items()
    }
    return {
        **sources,
        "webhooks": {
            "enabled": True,
            "max_attempts": _MAX_ATTEMPTS,
            "private_networks": ["127.0.0.0/8"],
            "endpoints": [{"name": "bookkeeping", "url": f"{address}{_RECEIVER}"}],
        },
    }


@dataclass
class _Replay:
    """A scene that was started again, and how many of its minutes have been shown."""

    scene: Scene
    began: datetime
    shown: int = 0

    @property
    def minutes(self) -> range:
        return self.scene.replay or range(0)


class DemoUpstreams:
    """The simulators of the demo, and the script of their faults."""

    def __init__(self, path: Path, progress: DemoProgress, clock: Clock = system_clock) -> None:
        self._path = path
        self._clock = clock
        now = clock()
        self._began = now - progress.elapsed
        folder = DemoFolder(path, self._began, now)
        self._parts = demo_parts()
        self.simulations = {name: part.simulation(folder) for name, part in self._parts.items()}
        self._minute = self._elapsed_minutes()
        self._replays: list[_Replay] = []

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[str]:
        """Serve the simulators and run the script; yield the address."""
        app = Starlette(
            routes=[
                *(Mount(f"/{name}", one.app) for name, one in self.simulations.items()),
                Route(_RECEIVER, self._receive, methods=["POST"]),
                Route(f"{REPLAY_PATH}/{{number:int}}", self._replay, methods=["POST"]),
            ]
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
        is_down = self._minute % _HOUR in RECEIVER_DOWN or any(
            replay.scene.replay == RECEIVER_DOWN for replay in self._replays
        )
        return Response(status_code=503 if is_down else 204)

    async def _replay(self, request: Request) -> Response:
        scenes = dict(enumerate(all_scenes(), 1))
        scene = scenes.get(request.path_params["number"])
        if scene is None or scene.replay is None:
            return Response(status_code=404)
        self.replay(scene)
        return Response(status_code=204)

    def replay(self, scene: Scene) -> None:
        """Begin a scene again now, with the faults of its minutes."""
        self._replays = [one for one in self._replays if one.scene != scene]
        self._replays.append(_Replay(scene, self._clock()))
        self._advance_replays()

    def _advance_replays(self) -> None:
        for replay in self._replays:
            passed = int((self._clock() - replay.began) / timedelta(minutes=1))
            minutes = replay.minutes
            for minute in minutes[replay.shown : passed + 1]:
                for name, part in self._parts.items():
                    if replay.scene in part.scenes:
                        part.switch_faults(minute, self.simulations[name].faults)
            replay.shown = passed + 1
        self._replays = [one for one in self._replays if one.shown <= len(one.minutes)]

    def advance(self) -> None:
        """Switch the faults of the minutes that have passed since the last call."""
        self._advance_replays()
        now = self._elapsed_minutes()
        for minute in range(self._minute + 1, now + 1):
            for name, part in self._parts.items():
                part.switch_faults(minute % _HOUR, self.simulations[name].faults)
        self._minute = now

    async def _run_script(self) -> None:
        while True:
            self.advance()
            self._store_progress()
            await asyncio.sleep(5)

    def _store_progress(self) -> None:
        DemoProgress(self._clock() - self._began).write(self._path)

    def _elapsed_minutes(self) -> int:
        return int((self._clock() - self._began) / timedelta(minutes=1))
