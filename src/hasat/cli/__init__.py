"""What a person types: one module per command group."""

import sys
from typing import Annotated

import typer

from hasat import __version__
from hasat.cli import manners
from hasat.errors import HasatError

__all__ = ["app", "main"]

app = typer.Typer(
    name="hasat",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=f"""Harvests public sources within their limits and hands every change on.

Start with `hasat up`, look with `hasat doctor`.

{manners.EXIT_CODES}""",
)


@app.callback()
def _globals(
    ctx: typer.Context,
    home: Annotated[str | None, typer.Option(help="Where data lives (HASAT_HOME).")] = None,
    config: Annotated[
        str | None, typer.Option(help="The folder of YAML files (HASAT_CONFIG).")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. serve.port=9000."),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=lambda on: _show_version(on))
    ] = False,
) -> None:
    flags = manners.parse_pairs(pairs or [])
    for name, value in (("home", home), ("config", config), ("log.level", log_level)):
        if value is not None:
            flags[name] = value
    ctx.obj = flags


def _show_version(on: bool) -> None:
    if on:
        print(f"hasat {__version__}")
        raise typer.Exit


def _assemble() -> None:
    from hasat.cli import (
        archive,
        config,
        db,
        demo,
        doctor,
        gib,
        jobs,
        keys,
        quota,
        replica,
        roles,
        simulate,
        webhooks,
    )

    app.add_typer(db.app, name="db")
    app.add_typer(config.app, name="config")
    app.add_typer(jobs.app, name="jobs")
    app.add_typer(gib.app, name="gib")
    app.add_typer(archive.app, name="archive")
    app.add_typer(keys.app, name="keys")
    app.add_typer(simulate.app, name="sim")
    app.add_typer(webhooks.app, name="webhooks")
    doctor.add_to(app)
    quota.add_to(app)
    replica.add_to(app)
    roles.add_to(app)
    demo.add_to(app)


_assemble()


def main() -> None:
    """Run the command line; every ending is an exit code and, if it went wrong, a sentence."""
    try:
        app()
    except HasatError as error:
        manners.note(f"hasat: {error.message}")
        if error.remedy:
            manners.note(f"       {error.remedy}")
        sys.exit(error.exit_code)
