"""The command line: the root command, which loads a module when one of its commands is called."""

import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
import typer.main
from typer.core import TyperGroup

from hasat.cli.source_commands import source_command, source_command_names
from hasat.console import context, output
from hasat.console.help import localize_help
from hasat.errors import HasatError
from hasat.messages import change_text
from hasat.text import mask_addresses

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = {
    "archive": "commands.archive:app",
    "audit": "commands.access:audit",
    "config": "commands.config:app",
    "db": "commands.db:app",
    "demo": "commands.demo:demo",
    "doctor": "commands.doctor:doctor",
    "holds": "commands.holds:app",
    "jobs": "commands.jobs:app",
    "keys": "commands.access:app",
    "mcp": "commands.processes:mcp",
    "quota": "commands.quota:quota",
    "rebuild": "commands.jobs:rebuild",
    "receipt": "commands.receipt:app",
    "replica": "commands.replica:replica",
    "serve": "commands.processes:serve",
    "sim": "commands.sim:app",
    "source": "new_source:app",
    "up": "commands.processes:up",
    "watchlists": "commands.watchlists:app",
    "webhooks": "commands.webhooks:app",
    "worker": "commands.processes:worker",
}


class _LazyGroup(TyperGroup):
    """A group that imports the module of a command when the command is called."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        localize_help(self)
        super().format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*COMMANDS, *source_command_names()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            # The names that an error suggests.
            self.commands = dict.fromkeys(self.list_commands(ctx), self)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # A platform command does not load the sources.
        known = cmd_name in COMMANDS
        command = _platform_command(cmd_name) if known else source_command(cmd_name)
        if command is not None:
            localize_help(command)
        return command


def _platform_command(cmd_name: str) -> Any:
    module, _, attribute = COMMANDS[cmd_name].partition(":")
    found = getattr(import_module(f"hasat.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = cmd_name
        return group
    single = typer.Typer()
    single.command()(found)
    return typer.main.get_group(single).commands[cmd_name]


app = typer.Typer(
    name="hasat",
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=f"""Mirror public sources within their limits and publish every change.

Start with `hasat up`; check the installation with `hasat doctor`.

{output.EXIT_CODES}""",
)


@app.callback()
def _globals(
    ctx: typer.Context,
    home: Annotated[str | None, typer.Option(help="Data folder (HASAT_HOME).")] = None,
    config: Annotated[
        str | None, typer.Option(help="Folder of the YAML files (HASAT_CONFIG).")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. serve.port=9000."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda on: _show_version(on),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    flags = context.parse_pairs(pairs or [])
    for name, value in (("home", home), ("config", config), ("log.level", log_level)):
        if value is not None:
            flags[name] = value
    ctx.obj = flags
    context.create_private_files(ctx)


def _show_version(on: bool) -> None:
    if on:
        from hasat import __version__

        print(f"hasat {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; report an error as one sentence, its remedy and an exit code."""
    try:
        app()
    except HasatError as error:
        _exit(error)
    except OSError as error:
        from hasat.store.home import explain_disk_full

        if (full := explain_disk_full(error)) is None:
            raise
        _exit(full)


def _exit(error: HasatError) -> NoReturn:
    message = change_text(error.message, mask_addresses)
    output.note(f"hasat: {output.localize(message)}")
    if error.remedy:
        output.note(f"       {output.localize(error.remedy)}")
    sys.exit(error.exit_code)
