"""How every command behaves: data on stdout, remarks on stderr, errors as sentences."""

import asyncio
import json as jsonlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.console import Console, RenderableType

from hasat.errors import UsageError
from hasat.logs import configure_logging
from hasat.messages import language_of_environment, msg, translate
from hasat.settings import Settings, load_settings

T = TypeVar("T")

_WIDE = 10_000
_PRIVATE = 0o077

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit record.")
]

EXIT_CODES = """Exit codes: 0 ok, 1 failed, 2 usage, 3 nothing to do, 4 held by the guard,
5 out of quota, 130 interrupted."""


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def is_terminal() -> bool:
    """Whether a person watches the remarks; progress is shown only then."""
    return sys.stderr.isatty()


def localized(text: str) -> str:
    """Return a message in the language of the terminal."""
    return translate(text, language_of_environment(os.environ))


def note(sentence: str) -> None:
    """A remark for the person at the terminal; never part of the data."""
    print(localized(sentence), file=sys.stderr, flush=True)


def emit(value: Any, *, json: bool, human: Callable[[], RenderableType]) -> None:
    """Print data: as one JSON document, or as the command's own text."""
    if json:
        print(jsonlib.dumps(value, ensure_ascii=False, indent=2, default=_plain))
        return
    # Nobody's window limits what goes into a pipe.
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(highlight=False, soft_wrap=width is not None, width=width)
    console.print(human(), markup=False)


def settings_of(ctx: typer.Context) -> Settings:
    """The settings of this call, loaded once with the global flags; logs follow them."""
    root = ctx.find_root()
    if "settings" not in root.meta:
        settings = load_settings(cast(dict[str, str], root.obj))
        configure_logging(settings)
        root.meta["settings"] = settings
    return cast(Settings, root.meta["settings"])


def create_private_files(ctx: typer.Context) -> None:
    """Let nobody else read the files that this command stores."""
    caller = os.umask(_PRIVATE)
    ctx.meta["umask"] = caller
    ctx.call_on_close(lambda: os.umask(caller))


def umask_for(ctx: typer.Context, *named: Path | None) -> int:
    """Return the umask for files that the caller names: the caller's own, but not in the home."""
    home = settings_of(ctx).home.resolve()
    if any(path is not None and path.resolve().is_relative_to(home) for path in named):
        return _PRIVATE
    return cast(int, ctx.find_root().meta["umask"])


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Create files with another umask for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end; a signal ends it in order, with the code for that."""
    told_to_end = False

    async def until_told_to_end() -> T:
        task = asyncio.current_task()
        assert task is not None

        def end() -> None:
            nonlocal told_to_end
            told_to_end = True
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end)
        return await coroutine

    try:
        return asyncio.run(until_told_to_end())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except asyncio.CancelledError:
        if not told_to_end:
            raise
        raise typer.Exit(130) from None


def parse_pairs(pairs: list[str]) -> dict[str, str]:
    """``key=value`` arguments as a mapping."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(msg("{pair!r} is not of the form key=value.", pair=pair))
        parsed[key.strip()] = value
    return parsed


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
