"""The help of commands in the language of the environment."""

import inspect
import os
from collections.abc import Iterator
from typing import Any

import typer

from hasat.messages import (
    DEFAULT_LANGUAGE,
    Language,
    language_of_environment,
    msg,
    template,
    translate,
)

_HELP_OF_HELP = msg("Show this message and exit.")
# Typer reads these texts from constants of its module.
_TEXTS_OF_TYPER = {
    "OPTIONS_PANEL_TITLE": msg("Options"),
    "ARGUMENTS_PANEL_TITLE": msg("Arguments"),
    "COMMANDS_PANEL_TITLE": msg("Commands"),
    "ERRORS_PANEL_TITLE": msg("Error"),
    "ABORTED_TEXT": msg("Aborted."),
    "REQUIRED_LONG_STRING": msg("[required]"),
    "DEFAULT_STRING": template("[default: {}]"),
    "RICH_HELP": template("Try [blue]'{command_path} {help_option}'[/] for help."),
}


class _UsageFormatter(typer.Context.formatter_class):  # type: ignore[misc, valid-type]
    """Writes the usage of a command with a translated label."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        language = language_of_environment(os.environ)
        super().write_usage(prog, args, translate(msg("Usage: "), language))


def help_texts(command: Any) -> Iterator[str]:
    """Return the help of a command and of its options, as it is translated."""
    for text in (command.help, *(getattr(one, "help", None) for one in command.params)):
        if text:
            yield inspect.cleandoc(text)


def localize_help(command: Any) -> None:
    """Translate the help of a command, its options and its loaded subcommands."""
    language = language_of_environment(os.environ)
    if language == DEFAULT_LANGUAGE:
        return
    _localize_typer(language)
    command.context_class.formatter_class = _UsageFormatter
    for part in (command, *command.params):
        if text := getattr(part, "help", None):
            part.help = translate(inspect.cleandoc(text), language)
    if (option := command.get_help_option(typer.Context(command))) is not None:
        option.help = translate(_HELP_OF_HELP, language)
    for subcommand in getattr(command, "commands", {}).values():
        localize_help(subcommand)


def _localize_typer(language: Language) -> None:
    """Translate the texts that Typer adds to the help of every command."""
    from typer import rich_utils

    for name, text in _TEXTS_OF_TYPER.items():
        setattr(rich_utils, name, translate(text, language))
