"""One execution for concurrent callers: probes have no rate limit, so a flood must cost little."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs one coroutine at a time; a call during its execution gets its result."""

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None

    async def __call__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(work())
        # Shielded: the others need the result when one caller disconnects.
        return await asyncio.shield(self._task)
