"""The page docs/reference/commands.md, written from the commands themselves."""

import inspect

import click
import typer.main

from hasat.cli import app, manners

_HEAD = f"""# Commands

Written by `scripts/docs` from the commands themselves; a test fails when it is stale.

Data goes to stdout, remarks and progress to stderr. `--json` prints data as one JSON document.
`hasat --install-completion` sets shell completion up.

{" ".join(manners.EXIT_CODES.split())}
"""


def markdown() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    parts = [_HEAD, "## Flags of every command\n\n" + _options(root)]
    parts += _pages(root, "hasat")
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _pages(group: click.Group, path: str) -> list[str]:
    pages = []
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            pages += _pages(command, f"{path} {name}")
        elif not command.hidden:
            pages.append(_page(command, f"{path} {name}"))
    return pages


def _page(command: click.Command, path: str) -> str:
    arguments = " ".join(
        parameter.human_readable_name if parameter.required else f"[{parameter.human_readable_name}]"
        for parameter in command.params
        if isinstance(parameter, click.Argument)
    )
    usage = f"{path} {arguments}".strip()
    return f"## `{usage}`\n\n{inspect.cleandoc(command.help or '')}\n\n{_options(command)}"


def _options(command: click.Command) -> str:
    rows = []
    for parameter in command.params:
        told = getattr(parameter, "help", None) or ""
        if isinstance(parameter, click.Option) and parameter.name != "help":
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            rows.append(f"| {names} | {told} |")
        elif isinstance(parameter, click.Argument) and told:
            rows.append(f"| `{parameter.human_readable_name}` | {told} |")
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n" if rows else ""
