"""Simulated upstreams: loopback servers with a seed, a clock and named faults."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.errors import HasatError, UsageError
from hasat.http.listener import Listener, bind
from hasat.messages import msg
from hasat.sim.clock import SettableClock

CONTROL_PATH = "/_sim"


# The faults of every simulator; `_FaultyApp` carries them out.
COMMON_FAULTS = {
    "slow": "every response waits `seconds`",
    "error": "every response has the status `status` (500)",
    "reset": "the connection is cut in the middle of the response",
    "garbage": "every response has a body that cannot be read",
}


_GARBAGE = b'{"\xff\x00": [<not JSON, no XML, no ZIP'


@dataclass
class Fault:
    """A fault that is switched on."""

    name: str
    share: float = 1.0
    times: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class Faults:
    """The faults of one simulation: which are known, and which are switched on."""

    def __init__(self, known: Mapping[str, str], rng: random.Random) -> None:
        self.known = {**COMMON_FAULTS, **known}
        self._rng = rng
        self._on: dict[str, Fault] = {}

    def switch_on(
        self, name: str, *, share: float = 1.0, times: int | None = None, **options: Any
    ) -> None:
        """Show a fault in a share of the requests, for a number of times or until switched off."""
        if name not in self.known:
            raise UsageError(
                msg("There is no fault named {name!r}.", name=name),
                remedy=msg("Known faults: {known}.", known=", ".join(sorted(self.known))),
            )
        if not 0 < share <= 1 or (times is not None and times < 1):
            raise UsageError(
                msg("A fault needs a share in (0, 1] and, if given, times of 1 or more.")
            )
        self._on[name] = Fault(name, share, times, options)

    def switch_off(self, name: str | None = None) -> None:
        """Switch one fault off, or all of them."""
        if name is None:
            self._on.clear()
        else:
            self._on.pop(name, None)

    def strikes(self, name: str) -> Fault | None:
        """Return the fault if it hits this request, and count it."""
        fault = self._on.get(name)
        if fault is None or self._rng.random() >= fault.share:
            return None
        if fault.times is not None:
            fault.times -= 1
            if fault.times == 0:
                del self._on[name]
        return fault

    @property
    def on(self) -> tuple[Fault, ...]:
        return tuple(self._on.values())


@dataclass(frozen=True)
class Simulator:
    """A local stand-in for an upstream."""

    name: str
    summary: str
    build: Callable[["Simulation"], ASGIApp]
    faults: Mapping[str, str] = field(default_factory=dict)
    settings: Callable[[str], Mapping[str, Any]] | None = None
    """The settings with which its source uses a simulation at an address."""
    command: Callable[[], Callable[..., None]] | None = None
    """The command `hasat sim <name>`, if it has flags of its own; loaded on demand."""


class Simulation:
    """A simulator with its own seed, clock and faults."""

    def __init__(
        self,
        simulator: Simulator,
        *,
        seed: int = 0,
        clock: SettableClock | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.simulator = simulator
        self.seed = seed
        self.random = random.Random(f"{simulator.name}:{seed}")  # noqa: S311 - a simulation
        self.clock = clock or SettableClock()
        self.options = dict(options or {})
        # A separate generator: a fault must not change the data that the seed yields.
        self.faults = Faults(simulator.faults, random.Random(f"faults:{seed}"))  # noqa: S311
        self.requests: Counter[str] = Counter()
        # The state of the simulator, for tests.
        self.inside: Any = None
        self.app: ASGIApp = _with_controls(self, _FaultyApp(self, simulator.build(self)))


class _FaultyApp:
    """Counts requests and carries out the common faults."""

    def __init__(self, simulation: Simulation, app: ASGIApp) -> None:
        self._sim = simulation
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._sim.requests[f"{scope['method']} {scope['path']}"] += 1
        if fault := self._sim.faults.strikes("slow"):
            await asyncio.sleep(float(fault.options.get("seconds", 1.0)))
        if fault := self._sim.faults.strikes("error"):
            status = int(fault.options.get("status", 500))
            content = None if status == 204 else "simulated fault"
            await Response(content, status_code=status)(scope, receive, send)
            return
        if self._sim.faults.strikes("garbage"):
            await Response(_GARBAGE, media_type="application/json")(scope, receive, send)
            return
        if self._sim.faults.strikes("reset"):
            await _cut_short(self._app, scope, receive, send)
            return
        await self._app(scope, receive, send)


class _CutError(Exception):
    """Ends a response before its body is complete."""


async def _cut_short(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the headers and half of the first chunk, then end as if the server had died."""

    async def half(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            # A client that resumes needs the true length; an empty body cannot be halved.
            if int(headers.get(b"content-length", b"0")) < 2:
                headers[b"content-length"] = b"999999999"
            await send({**message, "headers": list(headers.items())})
            return
        body = message.get("body", b"")
        await send(
            {"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True}
        )
        raise _CutError

    try:
        await app(scope, receive, half)
    except _CutError:
        # Returning with the response unfinished makes the server close the connection.
        return


def _with_controls(simulation: Simulation, app: ASGIApp) -> ASGIApp:
    async def show(_request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "upstream": simulation.simulator.name,
                "seed": simulation.seed,
                "now": simulation.clock().isoformat(),
                "speed": simulation.clock.speed,
                "faults": {
                    "known": simulation.faults.known,
                    "on": [vars(fault) for fault in simulation.faults.on],
                },
                "requests": dict(simulation.requests),
            }
        )

    async def set_clock(request: Request) -> JSONResponse:
        change = await request.json()
        # The speed first: a clock that is stopped and set shows exactly the given time.
        if "speed" in change:
            simulation.clock.set_speed(float(change["speed"]))
        if "now" in change:
            simulation.clock.set_time(datetime.fromisoformat(change["now"]))
        if "advance" in change:
            simulation.clock.advance(float(change["advance"]))
        return await show(request)

    async def set_fault(request: Request) -> JSONResponse:
        name = request.path_params["name"]
        if request.method == "DELETE":
            simulation.faults.switch_off(name)
        else:
            simulation.faults.switch_on(
                name, **(await request.json() if await request.body() else {})
            )
        return await show(request)

    async def reject(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    return Starlette(
        routes=[
            Route(CONTROL_PATH, show),
            Route(f"{CONTROL_PATH}/clock", set_clock, methods=["POST"]),
            Route(f"{CONTROL_PATH}/faults/{{name}}", set_fault, methods=["PUT", "DELETE"]),
            Mount("/", app),
        ],
        exception_handlers={HasatError: reject, ValueError: reject, TypeError: reject},
    )


@asynccontextmanager
async def simulate(simulation: Simulation, port: int = 0) -> AsyncIterator[str]:
    """Serve a simulation on loopback in this process and yield its address."""
    async with serve_app(simulation.app, port) as address:
        yield address


@asynccontextmanager
async def serve_app(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve an app on loopback in this process and yield its address."""
    listening = bind("127.0.0.1", port)
    listener = Listener(app, listening)
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listener.drain()
        await listener.wait_closed()
