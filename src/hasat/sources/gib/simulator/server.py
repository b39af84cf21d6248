"""The Revenue Administration as a publisher of taxpayer lists, with churn and faults.

Every `every` seconds of the simulated clock the lists move on by a step, and whoever asks next is
given the lists of that step. Turning the clock (`POST /_sim/clock {"advance": 21600}`) makes time
pass. `users`, `churn` and `began` say how many are listed at first, how many times the usual
numbers a step changes, and when step 0 was published.
"""

import asyncio
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Mapping
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
from hasat.sources.gib.simulator.lists import BOXES, Box, Publisher, Wish

PATHS: Final[dict[Box, str]] = {
    box: f"/EFaturaMerkez/newUser{box.title()}Listxml.zip" for box in BOXES
}
SIX_HOURS: Final = 21_600.0

# Each concerns both lists or, with the option `list`, pk or gb alone.
FAULTS: Final = {
    "truncated": "the file ends in its middle, under the marks of the whole one",
    "empty": "the list names nobody",
    "half-list": "every other taxpayer is missing",
    "gb-missing": "the GB list is not there (404)",
    "stale": "the list is the one before the newest",
    "wrong-sizes": "the ZIP's directory tells a wrong size",
    "shuffled": "the same taxpayers in another order, a new one each time",
}
# Where an entry of a ZIP's directory tells the size of the content.
_SIZE_AT = 24


class TaxpayerLists:
    """Both lists as they are at each step, written to disk when they are first asked for."""

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

    async def move_on(self) -> None:
        """Publish the step that is due; the one before stays, anything older goes."""
        async with self._writing:
            due = int((self._clock() - self._began) / self._every)
            if due > self.step or not self.path("PK").exists():
                await asyncio.to_thread(self._publish, max(due, self.step))

    def path(self, box: Box, step: int | None = None) -> Path:
        return self._of(self.step if step is None else step) / f"{box}.zip"

    def modified(self, step: int) -> datetime:
        """When a step's lists were published."""
        return (self._began + step * self._every).astimezone(UTC).replace(microsecond=0)

    def mark(self, box: Box, step: int) -> str:
        """What tells a list from every other that any simulation publishes."""
        return f"{box}-{self._world}-{step}"

    @property
    def last_step(self) -> int:
        """The step before the newest, or the newest if it is the only one."""
        return min(int(folder.name) for folder in self._folder.iterdir() if folder.name.isdigit())

    async def spoilt(self, box: Box, how: str, number: int) -> Path:
        """The newest list with a fault."""
        path = self._of(self.step) / f"{box}.{how}.{number}.zip"
        async with self._writing:
            if not path.exists():
                await asyncio.to_thread(self._spoil, box, how, number, path)
        return path

    def _publish(self, due: int) -> None:
        for old in self._folder.iterdir():
            if old != self._of(self.step):
                shutil.rmtree(old, ignore_errors=True)
        for _ in range(self.step, due):
            self._publisher.step(self._churn)
        unfinished = self._folder / "unfinished"
        unfinished.mkdir(parents=True)
        for box, path in self._publisher.write(unfinished).items():
            path.rename(unfinished / f"{box}.zip")
        unfinished.rename(self._of(due))
        self.step = due

    def _spoil(self, box: Box, how: str, number: int, path: Path) -> None:
        whole = self.path(box)
        if how == "shuffled":
            self._publisher.write_list(path, box, Wish(shuffle=number))
        elif how == "half-list":
            self._publisher.write_list(path, box, Wish(records=slice(0, None, 2)))
        elif how == "empty":
            self._publisher.write_list(path, box, Wish(records=slice(0)))
        else:
            shutil.copyfile(whole, path)
            with path.open("r+b") as file:
                if how == "truncated":
                    file.truncate(path.stat().st_size // 2)
                else:
                    _tell_another_size(file)

    def _of(self, step: int) -> Path:
        return self._folder / f"{step:09d}"


def _tell_another_size(file: Any) -> None:
    with zipfile.ZipFile(file) as archive:
        place, size = archive.start_dir + _SIZE_AT, archive.infolist()[0].file_size
    file.seek(place)
    file.write((size - 1000).to_bytes(4, "little"))


class _Answering:
    """Answers requests for either list."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        folder = tempfile.mkdtemp(prefix="hasat-sim-gib-")
        # Goes with this object, or at the latest with the process.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._lists = TaxpayerLists(simulation, Path(folder))
        self._orders = 0

    async def pk(self, request: Request) -> Response:
        return await self._answer("PK", request)

    async def gb(self, request: Request) -> Response:
        return await self._answer("GB", request)

    async def _answer(self, box: Box, request: Request) -> Response:
        if box == "GB" and self._sim.faults.strikes("gb-missing"):
            return PlainTextResponse("Not Found", status_code=404)
        await self._lists.move_on()
        step = self._lists.step
        path = self._lists.path(box)
        if self._strikes("stale", box):
            step = self._lists.last_step
            path = self._lists.path(box, step)
        marks = self._lists.mark(box, step)
        for how in ("truncated", "empty", "half-list", "wrong-sizes", "shuffled"):
            if self._strikes(how, box):
                self._orders += how == "shuffled"
                number = self._orders if how == "shuffled" else 0
                path = await self._lists.spoilt(box, how, number)
                marks += "" if how == "truncated" else f"-{how}-{number}"
                break
        headers = {
            "etag": f'"{marks}"',
            "last-modified": format_datetime(self._lists.modified(step), usegmt=True),
        }
        if _is_known(request.headers, headers):
            return Response(status_code=304, headers=headers)
        return FileResponse(path, media_type="application/zip", headers=headers)

    def _strikes(self, name: str, box: Box) -> Fault | None:
        wanted = next(
            (one.options.get("list") for one in self._sim.faults.on if one.name == name), None
        )
        if wanted is not None and str(wanted).upper() != box:
            return None
        return self._sim.faults.strikes(name)


def _is_known(asked: Mapping[str, str], have: Mapping[str, str]) -> bool:
    """Whether a conditional request names what we would send; its tag counts before its time."""
    if "if-none-match" in asked:
        return asked["if-none-match"] == have["etag"]
    since = asked.get("if-modified-since")
    if since is None:
        return False
    return parsedate_to_datetime(have["last-modified"]) <= parsedate_to_datetime(since)


def _build(simulation: Simulation) -> Starlette:
    serve_app = _Answering(simulation)
    return Starlette(
        routes=[
            Route(PATHS["PK"], serve_app.pk),
            Route(PATHS["GB"], serve_app.gb),
        ]
    )


def _number(options: Mapping[str, Any], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError as error:
        raise UsageError(
            msg("{name} must be a number, not {options!r}.", name=name, options=options[name])
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
        raise UsageError(msg("{began!r} is no time.", began=options["began"])) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


GIB = Simulator("gib", "the taxpayer lists of the Revenue Administration", _build, FAULTS)
