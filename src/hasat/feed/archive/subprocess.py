"""Run a function in a process of its own, which ends with its caller."""

import asyncio
import gc
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from hasat.errors import HasatError
from hasat.messages import msg
from hasat.orphans import end_with_parent

T = TypeVar("T")

# Fewer records are written sooner than a process starts.
_MIN_RECORDS = 20_000


async def run_in_worker(records: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run the function in a thread, or in a process of its own if there are many records."""
    return await (run_in_process if records > _MIN_RECORDS else asyncio.to_thread)(
        function, *arguments
    )


async def run_in_process(function: Callable[..., T], *arguments: Any) -> T:
    """Run the function in a process of its own and return its result."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, function, arguments), daemon=True)
    await asyncio.to_thread(process.start)
    theirs.close()
    try:
        result, error = await asyncio.to_thread(ours.recv)
    except EOFError:
        raise HasatError(
            msg("The writing process died."),
            remedy=msg("Run it again; if it dies again, check the free memory of the machine."),
        ) from None
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        ours.close()
    if error is not None:
        raise error
    returned: T = result
    return returned


def _serve(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches this process too, but the parent decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Records have no reference cycles; collecting garbage would take a third of the time.
    gc.disable()
    end_with_parent()
    try:
        pipe.send((function(*arguments), None))
    except HasatError as error:
        pipe.send((None, error))
