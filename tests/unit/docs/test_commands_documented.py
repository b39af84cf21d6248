"""Every command is documented, shows an example, and prints JSON where it prints data."""

import re
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from hasat.cli import app
from hasat.cli.reference import markdown

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def _commands(group: TyperGroup, path: str = "hasat") -> dict[str, TyperCommand]:
    found: dict[str, TyperCommand] = {}
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, TyperGroup):
            found |= _commands(command, f"{path} {name}")
        else:
            assert isinstance(command, TyperCommand)
            found[f"{path} {name}"] = command
    return found


def _all() -> dict[str, TyperCommand]:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return _commands(root)


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run scripts/docs"


@pytest.mark.parametrize("path", sorted(_all()))
def test_every_number_has_bounds(path: str) -> None:
    """A number without bounds may be too large for the database."""
    unbounded = [
        parameter.name
        for parameter in _all()[path].params
        if parameter.type_descriptor.annotation is int and parameter.max is None
    ]
    assert unbounded == []


@pytest.mark.parametrize("path", sorted(_all()))
def test_help_says_what_it_does_and_shows_an_example(path: str) -> None:
    text = _all()[path].help or ""
    assert len(text.splitlines()[0]) > 10
    assert re.search(f"Examples?:.*`[^`]*{path}", text, re.DOTALL), "an example is missing"
