"""Commands speak the language of the environment: help, headings and every text they print."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest
from rich.console import Console

from hasat.console import output
from hasat.console.tables import local_time, outcome
from hasat.messages import msg
from hasat.settings import load_settings

SOURCE = Path(str(files("hasat")))
MODULES = [
    *(SOURCE / "cli" / "commands").glob("*.py"),
    *(SOURCE / "console").glob("*.py"),
    *(SOURCE / "sources").rglob("commands/*.py"),
    *(SOURCE / "sources").rglob("commands.py"),
    *(SOURCE / "sources").rglob("command.py"),
]
PRINTING = {"Text", "note", "print", "append", "add_row", "text"}

# Writes the help of every command that a Turkish user can call.
ALL_HELP = """
import typer, typer.main
from typer.core import TyperGroup
from hasat.cli import app

def show(command, parent, name):
    context = command.context_class(command, parent=parent, info_name=name)
    print(command.get_help(context))
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            show(command.get_command(context, name), context, name)

show(typer.main.get_command(app), None, "hasat")
"""
ENGLISH = re.compile(
    r"Usage:|─ (?:Options|Arguments|Commands)|\[required\]|\[default"
    r"|(?<![\w-])(?:the|with|of|and|Show)\b"
)


def _literals(node: ast.expr) -> Iterator[str]:
    """Return the literals that an expression may be; those of calls are arguments of theirs."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.JoinedStr(parts):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "·" for one in parts)
        case ast.IfExp(_, body, orelse):
            yield from _literals(body)
            yield from _literals(orelse)
        case ast.BoolOp(_, parts) | ast.List(parts) | ast.Tuple(parts):
            for one in parts:
                yield from _literals(one)


def _printed(tree: ast.AST) -> Iterator[str]:
    """Return the literals among the arguments of calls that print."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name), arguments):
                if name in PRINTING:
                    for argument in arguments:
                        yield from _literals(argument)


def test_commands_print_only_texts_that_can_be_translated() -> None:
    sentences = {
        f"{file.relative_to(SOURCE)}: {text}"
        for file in MODULES
        for text in _printed(ast.parse(file.read_text("utf-8")))
        if re.search(r"[A-Za-z]{2,},? [a-z]{2,}", text) and "export HASAT_HOME" not in text
    }
    assert sentences == set()


def test_the_help_of_every_command_is_turkish() -> None:
    environ = {**os.environ, "HASAT_LANG": "tr", "TERMINAL_WIDTH": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALL_HELP], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("Kullanım: hasat") > 60
    assert [line for line in done.stdout.splitlines() if ENGLISH.search(line)] == []


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["name  records", "x     1,234", "1,234 keys", "held", "2026-11-19 09:05 +03"]),
        (
            "tr",
            [
                "ad  kayıt sayısı",
                "x   1.234",
                "1.234 anahtar",
                "onay bekliyor",
                "19.11.2026 09:05 +03",
            ],
        ),
    ],
)
def test_tables_numbers_states_and_times_follow_the_language(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    language: str,
    expected: list[str],
) -> None:
    monkeypatch.setenv("HASAT_LANG", language)
    table = output.table("name", "records")
    table.add_row("x", output.number(1234))
    Console(width=200).print(table)
    output.emit({}, json=False, human=lambda: msg("{count:,} keys", count=1234))
    output.emit({}, json=False, human=lambda: outcome("held"))
    at = datetime(2026, 11, 19, 6, 5, tzinfo=UTC)
    settings = load_settings(environ={"HASAT_JOBS_TIMEZONE": "Europe/Istanbul"})
    output.emit({}, json=False, human=lambda: local_time(at, settings))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == expected


def test_what_a_cell_says_is_data_unless_it_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASAT_LANG", "tr")
    table = output.table("name")
    table.add_row("jobs")
    table.add_row(msg("jobs"))
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    assert captured.get().split() == ["ad", "jobs", "görevler"]
