"""`hasat sim`: simulated upstreams on loopback."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from hasat.cli import context, output
from hasat.cli.supervisor import Parent

app = typer.Typer(no_args_is_help=True, help="Simulated upstreams, on loopback only.")

PortFlag = Annotated[
    int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 for a free one.")
]
SeedFlag = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, help="The same seed gives the same data.")
]
SpeedFlag = Annotated[
    float, typer.Option(min=0, max=10**6, help="Simulated seconds per real second.")
]


@app.command("list")
def list_upstreams(json: output.JsonFlag = False) -> None:
    """List the simulators and the faults that each can show.

    Example: `hasat sim list --json`
    """
    from hasat.sim.simulation import COMMON_FAULTS
    from hasat.sources.registry import all_simulators

    found = [
        {"name": u.name, "summary": u.summary, "faults": {**COMMON_FAULTS, **u.faults}}
        for u in all_simulators().values()
    ]

    def human() -> RenderableType:
        table = output.table("upstream", "summary", "faults")
        for one in all_simulators().values():
            table.add_row(one.name, one.summary, ", ".join({**COMMON_FAULTS, **one.faults}))
        return table

    output.emit(found, json=json, human=human)


@app.command()
def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Which upstream; see `hasat sim list`.")],
    port: PortFlag = 0,
    seed: SeedFlag = 0,
    speed: SpeedFlag = 1.0,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Options of the simulator.")
    ] = None,
) -> None:
    """Run one simulator until Ctrl-C; prints its address.

    GET ADDRESS/_sim shows its clock and faults; POST /_sim/clock and PUT or DELETE
    /_sim/faults/NAME change them. Example: `hasat sim run gib --seed 7`
    """
    _serve(ctx, name, port, seed, speed, context.parse_pairs(option or []))


@app.command()
def gib(
    ctx: typer.Context,
    users: Annotated[
        int, typer.Option(min=1, max=10**8, help="Taxpayers on the first lists.")
    ] = 100_000,
    every: Annotated[
        float,
        typer.Option(min=0.001, max=10**9, help="Simulated seconds between two publications."),
    ] = 21_600.0,
    churn: Annotated[
        float,
        typer.Option(
            min=0.001, max=10**6, help="Changes per publication, as a multiple of the usual."
        ),
    ] = 1.0,
    began: Annotated[
        str | None, typer.Option(metavar="TIME", help="When the first lists were published.")
    ] = None,
    port: PortFlag = 0,
    seed: SeedFlag = 1,
    speed: SpeedFlag = 1.0,
) -> None:
    """Publish changing taxpayer lists until Ctrl-C; prints the address.

    A publication adds 167, changes 222 and removes 48 of 1.5 million taxpayers, and proportionally
    less of fewer. The lists are /EFaturaMerkez/newUserPkListxml.zip and newUserGbListxml.zip.
    Examples: `hasat sim gib --users 20000 --every 60` · `hasat sim gib --users 1000000 --port 8999`
    """
    options = {"users": users, "every": every, "churn": churn}
    _serve(ctx, "gib", port, seed, speed, options | ({"began": began} if began else {}))


@app.command()
def demo(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where it stores its progress.")],
    port: PortFlag = 0,
) -> None:
    """Run all upstreams of the demo in one process until Ctrl-C; prints the address.

    They are at /gib, /tkgm and /football, each with its own /_sim.
    Example: `hasat sim demo --folder .demo`
    """
    from hasat.clock import system_clock
    from hasat.demo import DemoProgress, DemoUpstreams

    context.get_settings(ctx)
    folder.mkdir(parents=True, exist_ok=True)
    progress = DemoProgress.read(folder, system_clock())
    _serve_until_signal(DemoUpstreams(folder, progress).serve(port))


def _serve(
    ctx: typer.Context, name: str, port: int, seed: int, speed: float, options: Mapping[str, Any]
) -> None:
    from hasat.sim import Simulation, simulate
    from hasat.sim.clock import SettableClock
    from hasat.sources.registry import simulator_named

    context.get_settings(ctx)
    clock = SettableClock(speed=speed)
    simulation = Simulation(simulator_named(name), seed=seed, clock=clock, options=options)

    _serve_until_signal(simulate(simulation, port))


def _serve_until_signal(serving: AbstractAsyncContextManager[str]) -> None:
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
