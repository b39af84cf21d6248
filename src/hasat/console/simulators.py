"""Serving a simulator on loopback: the flags of its command, and its end."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import typer

from hasat.console import context
from hasat.console.supervisor import Parent

PortFlag = Annotated[
    int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 for a free one.")
]
SeedFlag = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, help="The same seed gives the same data.")
]
SpeedFlag = Annotated[
    float, typer.Option(min=0, max=10**6, help="Simulated seconds per real second.")
]


def serve_simulator(
    ctx: typer.Context, name: str, port: int, seed: int, speed: float, options: Mapping[str, Any]
) -> None:
    """Serve one simulator until a signal arrives."""
    from hasat.sim import Simulation, simulate
    from hasat.sim.clock import SettableClock
    from hasat.source.installed import simulator_named

    context.get_settings(ctx)
    clock = SettableClock(speed=speed)
    simulation = Simulation(simulator_named(name), seed=seed, clock=clock, options=options)

    serve_until_signal(simulate(simulation, port))


def serve_until_signal(serving: AbstractAsyncContextManager[str]) -> None:
    """Serve until a signal arrives or the supervisor exits; print the address to stdout."""

    async def serve() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with Parent.connect() as parent, serving as address:
            parent.when_gone(ended.set)
            if not parent.report_ready():
                print(address, flush=True)
            await ended.wait()

    context.run_async(serve())
