"""Commands in documentation and deployment files, checked against the existing ones."""

import re
import shlex
from collections.abc import Iterator
from functools import cache

import typer.main
from typer.core import TyperCommand, TyperGroup

from hasat.cli import app

_OPTION = re.compile(r"--?[a-zA-Z][\w-]*")
# Tokens that end a command on a line of shell.
_ENDS = frozenset({"|", "||", "&&", ";", ">", "2>", "&"})


@cache
def _tree() -> TyperGroup:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return root


def commands_in_markdown(markdown: str) -> Iterator[list[str]]:
    """Yield the arguments of every `hasat ...` command in the code of a page."""
    for code in [*_blocks(markdown), *re.findall(r"`([^`\n]+)`", markdown)]:
        for line in code.splitlines():
            yield from commands_in_line(line)


def commands_in_line(line: str) -> Iterator[list[str]]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    at = [n for n, word in enumerate(words) if word == "hasat" or word.endswith("/bin/hasat")]
    for start in at:
        # In `curl ... hasat` and `--tag hasat` it is not the name of the program.
        before = words[start - 1] if start else ""
        if before and not ("=" in before or before in _ENDS or before in ("sudo", "exec")):
            continue
        rest = words[start + 1 :]
        end = next((n for n, word in enumerate(rest) if word in _ENDS), len(rest))
        yield rest[:end]


def command_error(words: list[str]) -> str | None:
    """Return what is wrong with a command; None if it exists with these options."""
    group: TyperCommand | TyperGroup = _tree()
    known = {option for one in group.params for option in (*one.opts, *one.secondary_opts)}
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            return None
        if word in ("COMMAND", "..."):
            return None
        if word.startswith("-"):
            if _OPTION.match(word) and word.partition("=")[0] not in {*known, "--help"}:
                return f"{group.name} has no option {word}"
            if word in ("--set", "--home", "--config") and words and "=" not in word:
                words.pop(0)
            continue
        if isinstance(group, TyperGroup):
            found = group.get_command(typer.Context(group), word)
            if found is None:
                return f"there is no command {word!r}"
            assert isinstance(found, TyperCommand | TyperGroup)
            group = found
            known |= {option for one in group.params for option in (*one.opts, *one.secondary_opts)}
    return None


def _blocks(markdown: str) -> Iterator[str]:
    yield from re.findall(r"^```\w*\n(.*?)^```", markdown, re.DOTALL | re.MULTILINE)
    outside = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    yield "\n".join(line for line in outside.splitlines() if line.startswith("    "))
