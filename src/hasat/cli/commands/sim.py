"""`hasat sim`: simulated upstreams on loopback."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main
from rich.console import RenderableType
from typer.core import TyperGroup

from hasat.console import context, output
from hasat.console.help import localize_help
from hasat.console.simulators import (
    PortFlag,
    SeedFlag,
    SpeedFlag,
    serve_simulator,
    serve_until_signal,
)
from hasat.console.tables import Column

if TYPE_CHECKING:
    from hasat.sim import Simulator


class _SimulatorGroup(TyperGroup):
    """The commands of this module, and those that simulators bring."""

    def list_commands(self, ctx: Any) -> list[str]:
        brought = [one.name for one in _simulators() if one.command is not None]
        return [*super().list_commands(ctx), *brought]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        for one in _simulators():
            if one.name == cmd_name and one.command is not None:
                single = typer.Typer()
                single.command(cmd_name)(one.command())
                command = typer.main.get_group(single).commands[cmd_name]
                localize_help(command)
                return command
        return None


def _simulators() -> "Collection[Simulator]":
    from hasat.source.installed import all_simulators

    return all_simulators().values()


app = typer.Typer(
    cls=_SimulatorGroup, no_args_is_help=True, help="Simulated upstreams, on loopback only."
)


@app.command("list")
def list_upstreams(json: output.JsonFlag = False) -> None:
    """List the simulators and the faults that each can show.

    Example: `hasat sim list --json`
    """
    from hasat.sim.simulation import COMMON_FAULTS
    from hasat.source.installed import all_simulators

    found = [
        {"name": u.name, "summary": u.summary, "faults": {**COMMON_FAULTS, **u.faults}}
        for u in all_simulators().values()
    ]

    def human() -> RenderableType:
        table = output.table(
            "upstream", Column("summary", 1, wraps=True), Column("faults", wraps=True)
        )
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
    /_sim/faults/NAME change them. Example: `hasat sim run NAME --seed 7`
    """
    serve_simulator(ctx, name, port, seed, speed, context.parse_pairs(option or []))


@app.command()
def demo(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where it stores its progress.")],
    port: PortFlag = 0,
) -> None:
    """Run all upstreams of the demo in one process until Ctrl-C; prints the address.

    Each is at /NAME, with its own /_sim.
    Example: `hasat sim demo --folder .demo`
    """
    from hasat.demo.upstreams import DemoProgress, DemoUpstreams

    context.get_settings(ctx)
    folder.mkdir(parents=True, exist_ok=True)
    serve_until_signal(DemoUpstreams(folder, DemoProgress.read(folder)).serve(port))
