"""`hasat sim`: the simulated upstreams, as processes on loopback."""

import asyncio
from typing import Annotated

import typer
from rich.table import Table

from hasat.cli import manners

app = typer.Typer(no_args_is_help=True, help="Upstreams to practise on, on loopback only.")


@app.command("list")
def list_upstreams(json: manners.JsonFlag = False) -> None:
    """The upstreams that can be simulated, and the faults each can show.

    Example: `hasat sim list --json`
    """
    from hasat.sim import UPSTREAMS
    from hasat.sim.faults import COMMON

    found = [
        {"name": u.name, "summary": u.summary, "faults": {**COMMON, **u.faults}}
        for u in UPSTREAMS.values()
    ]

    def human() -> Table | str:
        if not found:
            return "This version has no simulated upstream yet."
        table = Table("upstream", "what it is", "faults")
        for upstream in UPSTREAMS.values():
            table.add_row(upstream.name, upstream.summary, ", ".join({**COMMON, **upstream.faults}))
        return table

    manners.emit(found, json=json, human=human)


@app.command()
def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Which upstream; see `hasat sim list`.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    seed: Annotated[int, typer.Option(help="Same seed, same world.")] = 0,
    speed: Annotated[float, typer.Option(help="Seconds of its clock per real second.")] = 1.0,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Options of that upstream.")
    ] = None,
) -> None:
    """Run one simulated upstream until Ctrl-C; prints its address.

    Its clock and faults are turned over HTTP: GET ADDRESS/_sim shows them, POST /_sim/clock and
    PUT or DELETE /_sim/faults/NAME change them. Example: `hasat sim run gib --seed 7`
    """
    from hasat.sim import Simulation, simulate
    from hasat.sim.clock import TurnableClock
    from hasat.sim.frame import upstream_named

    manners.settings_of(ctx)
    simulation = Simulation(
        upstream_named(name),
        seed=seed,
        clock=TurnableClock(speed=speed),
        options=manners.parse_pairs(option or []),
    )

    async def until_interrupted() -> None:
        async with simulate(simulation, port) as address:
            print(address, flush=True)
            await asyncio.Event().wait()

    manners.run_async(until_interrupted())
