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

# So few records are dealt with sooner than a process has started.
_FEW = 20_000


async def aside(records: int, function: Callable[..., T], *arguments: Any) -> T:
    """The function's result, from a thread or, if so many records are worth it, a process."""
    return await (apart if records > _FEW else asyncio.to_thread)(function, *arguments)


async def apart(function: Callable[..., T], *arguments: Any) -> T:
    """The function's result; its memory and its time are not this process's."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, arguments), daemon=True)
    await asyncio.to_thread(process.start)
    theirs.close()
    try:
        result, error = await asyncio.to_thread(ours.recv)
    except EOFError:
        raise HasatError(
            msg("The process that was writing died."),
            remedy=msg("Run it again; if it dies again, see whether the machine is out of memory."),
        ) from None
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        ours.close()
    if error is not None:
        raise error
    answer: T = result
    return answer


def _answer(line: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches this process too, but it is the other one's to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Millions of records and no cycles among them: looking for some is a third of the time.
    gc.disable()
    end_with_parent()
    try:
        line.send((function(*arguments), None))
    except HasatError as error:
        line.send((None, error))
