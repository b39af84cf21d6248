"""Worker slots: how many runs a worker executes at the same time."""

import asyncio


class Slots:
    """The slots of one worker; who waits for one is served in order."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def take(self, seconds: float) -> bool:
        """Take a slot; False if none becomes free within that many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self._free.acquire()
        except TimeoutError:
            return False

    async def wait_for_one(self) -> None:
        await self._free.acquire()

    def free(self) -> None:
        self._free.release()


class Slot:
    """A run's slot, vacated while the run waits for budget."""

    def __init__(self, slots: Slots) -> None:
        """Own a slot that was taken."""
        self._slots = slots
        self._occupied = True
        self._closed = False
        self._turn = asyncio.Lock()

    def vacate(self) -> None:
        if self._occupied:
            self._occupied = False
            self._slots.free()

    async def occupy(self) -> None:
        """Wait until the run may work again."""
        async with self._turn:
            if not self._occupied and not self._closed:
                await self._slots.wait_for_one()
                self._occupied = True

    def close(self) -> None:
        """End the use of the slot with the run."""
        self._closed = True
        self.vacate()
