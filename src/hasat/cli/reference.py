"""The page docs/reference/commands.md, written from the commands themselves."""

import inspect
from typing import Any

import typer.main
from typer.core import TyperArgument, TyperGroup, TyperOption

from hasat.cli import app, output

_HEAD = f"""# Commands

Written by `scripts/docs` from the commands themselves; a test fails when it is stale.

Data goes to stdout, remarks and progress to stderr. `--json` prints data as one JSON document.
`hasat --install-completion` sets shell completion up.

{" ".join(output.EXIT_CODES.split())}
"""


def markdown() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    parts = [_HEAD, "## Flags of every command\n\n" + _options(root)]
    parts += _pages(root, "hasat")
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _pages(group: TyperGroup, path: str) -> list[str]:
    pages = []
    context = typer.Context(group)
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, TyperGroup):
            pages += _pages(command, f"{path} {name}")
        elif not command.hidden:
            pages.append(_page(command, f"{path} {name}"))
    return pages


def _page(command: Any, path: str) -> str:
    arguments = " ".join(
        _shown(parameter) if parameter.required else f"[{_shown(parameter)}]"
        for parameter in command.params
        if isinstance(parameter, TyperArgument)
    )
    usage = f"{path} {arguments}".strip()
    return f"## `{usage}`\n\n{inspect.cleandoc(command.help or '')}\n\n{_options(command)}"


def _options(command: Any) -> str:
    rows = []
    for parameter in command.params:
        told = getattr(parameter, "help", None) or ""
        if isinstance(parameter, TyperOption) and parameter.name != "help":
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            rows.append(f"| {names} | {told} |")
        elif isinstance(parameter, TyperArgument) and told:
            rows.append(f"| `{_shown(parameter)}` | {told} |")
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n" if rows else ""


def _shown(argument: TyperArgument) -> str:
    return (argument.name or "").upper()
