"""Output of the commands: data on stdout, notes and progress on stderr."""

import json as jsonlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hasat.messages import Message, language_of_environment, translate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from hasat.console.tables import Column, FittingTable
    from hasat.jobs.context import OnProgress

_PIPE_WIDTH = 10_000

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit record.")
]

EXIT_CODES = """Exit codes: 0 ok, 1 failed, 2 usage, 3 nothing to do, 4 held by the guard,
5 out of quota, 130 interrupted."""


def stderr() -> "Console":
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def is_terminal() -> bool:
    """Return whether stderr is a terminal; progress is shown only there."""
    return sys.stderr.isatty()


def localize(text: str) -> str:
    """Return a message in the language of the environment."""
    return translate(text, language_of_environment(os.environ))


def shown(text: str) -> str:
    """Translate a message; other texts are data, which stay as they are."""
    return localize(text) if isinstance(text, Message) else text


def text(lines: Iterable[str]) -> "Text":
    """Return lines, translated where they are messages."""
    from rich.text import Text

    return Text("\n".join(map(shown, lines)))


def fields(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return labels and values as indented lines, with the values below each other."""
    labels = [shown(label) for label, _ in rows]
    width = max(map(len, labels), default=0)
    return [
        f"  {label:<{width}}  {shown(value)}"
        for label, (_, value) in zip(labels, rows, strict=True)
    ]


def number(value: float, spec: str = ",") -> Message:
    """Return a number that is written as the language writes it, by a Python format."""
    return Message(f"{{value:{spec}}}", {"value": value})


def note(sentence: str) -> None:
    """Print a note to stderr; notes are never part of the data."""
    print(localize(sentence), file=sys.stderr, flush=True)


def emit(value: Any, *, json: bool, human: "Callable[[], RenderableType]") -> None:
    """Print data as one JSON document, or as the text that `human` renders or returns."""
    if json:
        print(jsonlib.dumps(value, ensure_ascii=False, indent=2, default=_to_json))
        return
    from rich.console import Console

    # A pipe has no width: lines are not wrapped to that of the terminal.
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(highlight=False, soft_wrap=width is not None, width=width)
    rendered = human()
    console.print(text([rendered]) if isinstance(rendered, str) else rendered)


def table(*columns: "str | Column", numeric: bool = False) -> "FittingTable":
    """Return an empty table; `numeric` right-aligns all but the first column."""
    from dataclasses import replace

    from hasat.console.tables import Column, FittingTable

    given = [Column(one) if isinstance(one, str) else one for one in columns]
    return FittingTable(
        [
            replace(one, heading=localize(one.heading), numeric=one.numeric or (numeric and at > 0))
            for at, one in enumerate(given)
        ]
    )


@contextmanager
def progress_bar(name: str) -> "Iterator[OnProgress | None]":
    """Show a progress bar on stderr and yield its update function, or None without a terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    if not is_terminal():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr(), transient=True) as bars, _logs_above_bars():
        bar = bars.add_task(name, total=None)

        def on_progress(done: float, total: float | None, note: str) -> None:
            bars.update(bar, completed=done, total=total, description=f"{name} {note}".strip())

        yield on_progress


@contextmanager
def _logs_above_bars() -> Iterator[None]:
    """Send log lines through the stderr that rich has replaced, so that bars do not break them."""
    import logging

    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.__stderr__
    ]
    for handler in handlers:
        handler.setStream(sys.stderr)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(sys.__stderr__)


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
