"""The frame that simulators plug into."""

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

from hasat.errors import HasatError
from hasat.http.listener import Listener, bind
from hasat.sim.clock import TurnableClock
from hasat.sim.faults import Faults

CONTROL = "/_sim"


@dataclass(frozen=True)
class Simulator:
    """A local stand-in for an upstream."""

    name: str
    summary: str
    build: Callable[["Simulation"], ASGIApp]
    faults: Mapping[str, str] = field(default_factory=dict)


class Simulation:
    """One running upstream: everything random comes from its seed, all time from its clock."""

    def __init__(
        self,
        simulator: Simulator,
        *,
        seed: int = 0,
        clock: TurnableClock | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.simulator = simulator
        self.seed = seed
        self.random = random.Random(f"{simulator.name}:{seed}")  # noqa: S311 - a simulation
        self.clock = clock or TurnableClock()
        self.options = dict(options or {})
        # Its own generator, so that switching a fault on does not change the upstream's world.
        self.faults = Faults(simulator.faults, random.Random(f"faults:{seed}"))  # noqa: S311
        self.requests: Counter[str] = Counter()
        # What the upstream shows to tests of its inside.
        self.inside: Any = None
        self.app: ASGIApp = _with_controls(self, _Unreliable(self, simulator.build(self)))


class _Unreliable:
    """Counts each request and carries out the faults common to all upstreams."""

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
        if self._sim.faults.strikes("reset"):
            await _cut_short(self._app, scope, receive, send)
            return
        await self._app(scope, receive, send)


class _CutError(Exception):
    """The rest of the answer is not sent."""


async def _cut_short(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the head and half of the first part, then end as if the server had died."""

    async def half(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            # Whoever goes on where it broke off needs the true length; nothing cannot be halved.
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
        # Returning with the answer unfinished makes the server close the connection.
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

    async def turn_clock(request: Request) -> JSONResponse:
        wish = await request.json()
        # The speed first: a clock that is stopped and turned shows exactly what was asked for.
        if "speed" in wish:
            simulation.clock.run_at(float(wish["speed"]))
        if "now" in wish:
            simulation.clock.turn_to(datetime.fromisoformat(wish["now"]))
        if "advance" in wish:
            simulation.clock.advance(float(wish["advance"]))
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

    async def refuse(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    return Starlette(
        routes=[
            Route(CONTROL, show),
            Route(f"{CONTROL}/clock", turn_clock, methods=["POST"]),
            Route(f"{CONTROL}/faults/{{name}}", set_fault, methods=["PUT", "DELETE"]),
            Mount("/", app),
        ],
        exception_handlers={HasatError: refuse, ValueError: refuse, TypeError: refuse},
    )


@asynccontextmanager
async def simulate(simulation: Simulation, port: int = 0) -> AsyncIterator[str]:
    """Serve a simulation on loopback inside this process; gives its address."""
    async with answering(simulation.app, port) as address:
        yield address


@asynccontextmanager
async def answering(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve an app on loopback inside this process; gives its address."""
    listening = bind("127.0.0.1", port)
    listener = Listener(app, listening)
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listener.drain()
        await listener.until_over()
