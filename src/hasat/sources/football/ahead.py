"""What comes next is made ready while the last is still at work."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TypeVar

T = TypeVar("T")


async def ahead(stream: AsyncGenerator[T, None], most: int) -> AsyncGenerator[T, None]:
    """The same stream, read by a task of its own, at most so many ahead; to be closed."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(most)
    task = asyncio.create_task(_fill(stream, queue))
    try:
        while not isinstance(one := await queue.get(), _End):
            yield one
        if one.error is not None:
            raise one.error
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _End:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


async def _fill(stream: AsyncGenerator[T, None], queue: "asyncio.Queue[T | _End]") -> None:
    try:
        async with aclosing(stream):
            async for one in stream:
                await queue.put(one)
    except Exception as error:  # noqa: BLE001 - raised where the stream is read
        await queue.put(_End(error))
    else:
        await queue.put(_End())
