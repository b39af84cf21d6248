"""The help of commands in the language of the environment."""

import inspect
import os
from collections.abc import Iterator
from typing import Any

from hasat.messages import DEFAULT_LANGUAGE, language_of_environment, msg, translate


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
    for part in (command, *command.params):
        if text := getattr(part, "help", None):
            part.help = translate(inspect.cleandoc(text), language)
    for subcommand in getattr(command, "commands", {}).values():
        localize_help(subcommand)


def localize_panels() -> None:
    """Translate the headings of the help; Typer reads them from its own constants."""
    language = language_of_environment(os.environ)
    if language == DEFAULT_LANGUAGE:
        return
    from typer import rich_utils

    rich_utils.OPTIONS_PANEL_TITLE = translate(msg("Options"), language)
    rich_utils.ARGUMENTS_PANEL_TITLE = translate(msg("Arguments"), language)
    rich_utils.COMMANDS_PANEL_TITLE = translate(msg("Commands"), language)
