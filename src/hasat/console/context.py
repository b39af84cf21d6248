"""The context of one command call: its settings, its umask and its signals."""

import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from hasat.errors import UsageError
from hasat.messages import msg

if TYPE_CHECKING:
    import asyncio

    from hasat.settings import Settings

T = TypeVar("T")

_PRIVATE = 0o077


def get_flags(ctx: typer.Context) -> dict[str, str]:
    """Return the settings given as global flags; child processes receive them too."""
    return cast(dict[str, str], ctx.find_root().obj)


def get_settings(ctx: typer.Context) -> "Settings":
    """Return the settings of this call; the first call loads them and configures logging."""
    from hasat.logs import configure_logging
    from hasat.settings import load_settings

    root = ctx.find_root()
    if "settings" not in root.meta:
        settings = load_settings(get_flags(ctx))
        configure_logging(settings)
        root.meta["settings"] = settings
    return cast("Settings", root.meta["settings"])


def create_private_files(ctx: typer.Context) -> None:
    """Make files that this command creates readable by its user only."""
    caller = os.umask(_PRIVATE)
    ctx.meta["umask"] = caller
    ctx.call_on_close(lambda: os.umask(caller))


def umask_for(ctx: typer.Context, *named: Path | None) -> int:
    """Return the umask for files that the caller names: the caller's own, but not in the home."""
    home = get_settings(ctx).home.resolve()
    if any(path is not None and path.resolve().is_relative_to(home) for path in named):
        return _PRIVATE
    return cast(int, ctx.find_root().meta["umask"])


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask inside the block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def run_async(
    coroutine: Coroutine[Any, Any, T],
    loop_factory: "Callable[[], asyncio.AbstractEventLoop] | None" = None,
) -> T:
    """Run a command's coroutine; a signal cancels it and the command exits with 130."""
    import asyncio

    interrupted = False

    async def run_until_interrupted() -> T:
        task = asyncio.current_task()
        assert task is not None

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = True
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, interrupt)
        return await coroutine

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(run_until_interrupted())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except asyncio.CancelledError:
        if not interrupted:
            raise
        raise typer.Exit(130) from None


def parse_pairs(pairs: list[str]) -> dict[str, str]:
    """Parse ``key=value`` arguments."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(msg("{pair!r} is not of the form key=value.", pair=pair))
        parsed[key.strip()] = value
    return parsed
