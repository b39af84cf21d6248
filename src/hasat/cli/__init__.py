"""What a person types: one module per command group."""

import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
import typer.main
from typer.core import TyperGroup

from hasat import __version__
from hasat.cli import manners
from hasat.errors import HasatError
from hasat.messages import change_text
from hasat.text import mask_addresses

__all__ = ["app", "main"]

# The modules of the commands, each loaded when one of its commands is called for.
_MODULES = {
    "archive": ("archive",),
    "audit": ("audit",),
    "config": ("config",),
    "db": ("db",),
    "demo": ("demo",),
    "doctor": ("doctor",),
    "football": ("football",),
    "gib": ("gib",),
    "jobs": ("jobs",),
    "keys": ("keys",),
    "mcp": ("mcp",),
    "quota": ("quota",),
    "replica": ("replica",),
    "roles": ("up", "serve", "worker"),
    "simulate": ("sim",),
    "tkgm": ("tkgm",),
    "webhooks": ("webhooks",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


class _WhenCalled(TyperGroup):
    """Commands that are loaded when they are called for: most need only one module of many."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(_MODULE_OF)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _MODULE_OF:
            return None
        module = import_module(f"hasat.cli.{_MODULE_OF[cmd_name]}")
        if hasattr(module, "app"):
            group = typer.main.get_group(module.app)
            group.name = cmd_name
            return group
        shelf = typer.Typer()
        module.add_to(shelf)
        return typer.main.get_group(shelf).commands[cmd_name]


app = typer.Typer(
    name="hasat",
    cls=_WhenCalled,
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
    manners.create_private_files(ctx)


def _show_version(on: bool) -> None:
    if on:
        print(f"hasat {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; every ending is an exit code and, if it went wrong, a sentence."""
    try:
        app()
    except HasatError as error:
        _end(error)
    except OSError as error:
        from hasat.store.disk import explain_disk_full

        if (full := explain_disk_full(error)) is None:
            raise
        _end(full)


def _end(error: HasatError) -> NoReturn:
    message = change_text(error.message, mask_addresses)
    manners.note(f"hasat: {manners.localized(message)}")
    if error.remedy:
        manners.note(f"       {manners.localized(error.remedy)}")
    sys.exit(error.exit_code)
