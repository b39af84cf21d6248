"""The commands of the sources: `hasat <source> ...`."""

from collections.abc import Sequence
from typing import Any

import typer
import typer.main

from hasat.errors import HasatError
from hasat.extras import MissingExtraError
from hasat.messages import msg

_ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def source_command_names() -> Sequence[str]:
    """Return the sources with commands, and those that cannot be loaded."""
    from hasat.source.installed import installed_sources

    installed = installed_sources()
    usable = [source.name for source in installed.sources if source.commands is not None]
    return [*usable, *(broken.name for broken in installed.broken)]


def source_command(name: str) -> Any:
    """Return the group of commands of a source; None if it has none.

    A source that cannot be loaded has one command that says why, so that help of the other commands
    still works.
    """
    from hasat.source.installed import installed_sources
    from hasat.source.parts import explain

    installed = installed_sources()
    for broken in installed.broken:
        if broken.name == name:
            return _failing(name, broken.reason)
    for source in installed.sources:
        if source.name == name and source.commands is not None:
            try:
                group = typer.main.get_group(source.commands())
            except MissingExtraError as error:
                return _failing(name, error.message, error.remedy)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may fail in any way
                return _failing(name, explain(error))
            group.name = name
            return group
    return None


def _failing(name: str, reason: str, remedy: str | None = None) -> Any:
    problem = msg(
        "The commands of the source {name} cannot be loaded: {reason}", name=name, reason=reason
    )

    def fail() -> None:
        raise HasatError(
            problem,
            remedy=remedy
            or msg("Repair or uninstall its package; `hasat doctor` lists such sources."),
        )

    single = typer.Typer()
    single.command(name, help=problem, context_settings=_ANY_ARGUMENTS)(fail)
    return typer.main.get_group(single).commands[name]
