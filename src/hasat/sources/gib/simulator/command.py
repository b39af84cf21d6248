"""`hasat sim gib`: the simulator with its options as flags."""

from typing import Annotated

import typer

from hasat.console.simulators import PortFlag, SeedFlag, SpeedFlag, serve_simulator


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
    serve_simulator(ctx, "gib", port, seed, speed, options | ({"began": began} if began else {}))
