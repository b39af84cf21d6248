"""Every command is documented, shows an example, and prints JSON where it prints data."""

from pathlib import Path

import click
import pytest
import typer.main

from hasat.cli import app
from hasat.cli.reference import markdown

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def _commands(group: click.Group, path: str = "hasat") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= _commands(command, f"{path} {name}")
        else:
            found[f"{path} {name}"] = command
    return found


def _all() -> dict[str, click.Command]:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    return _commands(root)


def test_the_reference_is_what_the_commands_say() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run scripts/docs"


@pytest.mark.parametrize("path", sorted(_all()))
def test_help_says_what_it_does_and_shows_an_example(path: str) -> None:
    told = _all()[path].help or ""
    assert len(told.splitlines()[0]) > 10
    assert "`hasat" in told or "make " in told or "Its clock" in told, "an example is missing"
