"""The simulator of the Revenue Administration's taxpayer lists, with churn and faults.

A step is published every `every` seconds of the simulated clock, which can be advanced
(`POST /_sim/clock {"advance": 21600}`). `users` is the initial number of taxpayers, `churn` a
factor on the usual number of changes per step, and `began` the time of step 0.
"""

import asyncio
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sim import Simulation, Simulator
from hasat.sim.simulation import Fault
from hasat.sources.gib.simulator.lists import BOXES, Box, ListVariant, Publisher

PATHS: Final[dict[Box, str]] = {
    box: f"/EFaturaMerkez/newUser{box.title()}Listxml.zip" for box in BOXES
}
SIX_HOURS: Final = 21_600.0

# Each affects both lists or, with the option `list`, only pk or gb.
FAULTS: Final = {
    "truncated": "the file is cut in half, with the ETag of the complete one",
    "empty": "the list has no taxpayers",
    "half-list": "every other taxpayer is missing",
    "gb-missing": "the GB list is not there (404)",
    "stale": "the list is the previous one",
    "wrong-sizes": "the ZIP's directory has a wrong size",
    "shuffled": "the same taxpayers in a new order each time",
}
# The offset of the uncompressed size in an entry of a ZIP's directory.
_SIZE_AT = 24


class TaxpayerLists:
    """Both lists of each step, written to disk when they are first requested."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        options = simulation.options
        self._clock = simulation.clock
        self._folder = folder
        self._every = timedelta(seconds=_number(options, "every", SIX_HOURS))
        self._churn = _number(options, "churn", 1.0)
        self._began = _moment(options) or self._clock()
        users = int(_number(options, "users", 1_000))
        self._publisher = Publisher(users, simulation.seed)
        self._world = f"{users}-{simulation.seed}-{self._churn}"
        self._writing = asyncio.Lock()
        self.step = 0

    async def publish_due(self) -> None:
        """Publish the step that is due; keep the previous one and delete older ones."""
        async with self._writing:
            due = int((self._clock() - self._began) / self._every)
            if due > self.step or not self.path("PK").exists():
                await asyncio.to_thread(self._publish, max(due, self.step))

    def path(self, box: Box, step: int | None = None) -> Path:
        return self._step_folder(self.step if step is None else step) / f"{box}.zip"

    def modified(self, step: int) -> datetime:
        """Return when a step's lists were published."""
        return (self._began + step * self._every).astimezone(UTC).replace(microsecond=0)

    def tag(self, box: Box, step: int) -> str:
        """Return a tag that is unique among the lists of all simulations."""
        return f"{box}-{self._world}-{step}"

    @property
    def previous_step(self) -> int:
        """Return the previous step, or the newest if it is the only one."""
        return min(int(folder.name) for folder in self._folder.iterdir() if folder.name.isdigit())

    async def with_fault(self, box: Box, fault: str, number: int) -> Path:
        """Return the newest list with a fault."""
        path = self._step_folder(self.step) / f"{box}.{fault}.{number}.zip"
        async with self._writing:
            if not path.exists():
                await asyncio.to_thread(self._write_with_fault, box, fault, number, path)
        return path

    def _publish(self, due: int) -> None:
        for old in self._folder.iterdir():
            if old != self._step_folder(self.step):
                shutil.rmtree(old, ignore_errors=True)
        for _ in range(self.step, due):
            self._publisher.step(self._churn)
        unfinished = self._folder / "unfinished"
        unfinished.mkdir(parents=True)
        for box, path in self._publisher.write(unfinished).items():
            path.rename(unfinished / f"{box}.zip")
        unfinished.rename(self._step_folder(due))
        self.step = due

    def _write_with_fault(self, box: Box, fault: str, number: int, path: Path) -> None:
        complete = self.path(box)
        if fault == "shuffled":
            self._publisher.write_list(path, box, ListVariant(shuffle=number))
        elif fault == "half-list":
            self._publisher.write_list(path, box, ListVariant(records=slice(0, None, 2)))
        elif fault == "empty":
            self._publisher.write_list(path, box, ListVariant(records=slice(0)))
        else:
            shutil.copyfile(complete, path)
            with path.open("r+b") as file:
                if fault == "truncated":
                    file.truncate(path.stat().st_size // 2)
                else:
                    _corrupt_size(file)

    def _step_folder(self, step: int) -> Path:
        return self._folder / f"{step:09d}"


def _corrupt_size(file: Any) -> None:
    with zipfile.ZipFile(file) as archive:
        place, size = archive.start_dir + _SIZE_AT, archive.infolist()[0].file_size
    file.seek(place)
    file.write((size - 1000).to_bytes(4, "little"))


class _ListEndpoints:
    """The endpoints of both lists."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        folder = tempfile.mkdtemp(prefix="hasat-sim-gib-")
        # Deleted with this object, or at the latest when the process ends.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._lists = TaxpayerLists(simulation, Path(folder))
        self._shuffles = 0

    async def pk(self, request: Request) -> Response:
        return await self._respond("PK", request)

    async def gb(self, request: Request) -> Response:
        return await self._respond("GB", request)

    async def _respond(self, box: Box, request: Request) -> Response:
        if box == "GB" and self._sim.faults.strikes("gb-missing"):
            return PlainTextResponse("Not Found", status_code=404)
        await self._lists.publish_due()
        step = self._lists.step
        path = self._lists.path(box)
        if self._strikes("stale", box):
            step = self._lists.previous_step
            path = self._lists.path(box, step)
        tag = self._lists.tag(box, step)
        for fault in ("truncated", "empty", "half-list", "wrong-sizes", "shuffled"):
            if self._strikes(fault, box):
                self._shuffles += fault == "shuffled"
                number = self._shuffles if fault == "shuffled" else 0
                path = await self._lists.with_fault(box, fault, number)
                tag += "" if fault == "truncated" else f"-{fault}-{number}"
                break
        headers = {
            "etag": f'"{tag}"',
            "last-modified": format_datetime(self._lists.modified(step), usegmt=True),
        }
        if _is_unchanged(request.headers, headers):
            return Response(status_code=304, headers=headers)
        return FileResponse(path, media_type="application/zip", headers=headers)

    def _strikes(self, name: str, box: Box) -> Fault | None:
        wanted = next(
            (one.options.get("list") for one in self._sim.faults.on if one.name == name), None
        )
        if wanted is not None and str(wanted).upper() != box:
            return None
        return self._sim.faults.strikes(name)


def _is_unchanged(requested: Mapping[str, str], headers: Mapping[str, str]) -> bool:
    """Return whether a conditional request has this list; ETag takes precedence over time."""
    if "if-none-match" in requested:
        return requested["if-none-match"] == headers["etag"]
    since = requested.get("if-modified-since")
    if since is None:
        return False
    return parsedate_to_datetime(headers["last-modified"]) <= parsedate_to_datetime(since)


def _build(simulation: Simulation) -> Starlette:
    endpoints = _ListEndpoints(simulation)
    return Starlette(
        routes=[
            Route(PATHS["PK"], endpoints.pk),
            Route(PATHS["GB"], endpoints.gb),
        ]
    )


def _number(options: Mapping[str, Any], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError as error:
        raise UsageError(
            msg("{name} must be a number, not {value!r}.", name=name, value=options[name])
        ) from error
    if value <= 0:
        raise UsageError(msg("{name} must be greater than 0.", name=name))
    return value


def _moment(options: Mapping[str, Any]) -> datetime | None:
    if "began" not in options:
        return None
    try:
        moment = datetime.fromisoformat(str(options["began"]))
    except ValueError as error:
        raise UsageError(msg("{value!r} is not a time.", value=options["began"])) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _command() -> Callable[..., None]:
    from hasat.sources.gib.simulator.command import gib

    return gib


GIB = Simulator(
    "gib", msg("taxpayer lists of the Revenue Administration"), _build, FAULTS, command=_command
)
