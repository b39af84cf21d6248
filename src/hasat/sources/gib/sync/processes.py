"""Worker processes that read the lists, and the memory that a sync returns to the system."""

import asyncio
import ctypes
import gc
import multiprocessing
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from hasat.errors import HasatError
from hasat.messages import msg
from hasat.orphans import end_with_parent

T = TypeVar("T")

# Smaller lists are read by threads sooner than a process starts.
_MIN_BYTES_FOR_PROCESSES = 2_000_000

_LIBC = ctypes.CDLL(None)
_MMAP_THRESHOLD = -3
# Larger than the blocks in which a list is read, so that those are reused.
_LARGE_ARRAY = 4 << 20


class WorkerPool:
    """Runs functions in other processes or threads, as coroutines."""

    def __init__(self, executor: Executor, shares: int) -> None:
        self._executor = executor
        self.shares = shares
        """The number of shares that one list is worth dividing into."""

    def close(self) -> None:
        """Release the workers without waiting for them."""
        # After a cancellation a reader may be busy for some seconds.
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, function, *arguments)
        except BrokenProcessPool as error:
            raise HasatError(
                msg("A process that read the lists ended unexpectedly; nothing was changed."),
                remedy=msg(
                    "Run it again; if it happens again, check whether the machine is out of memory."
                ),
            ) from error


@asynccontextmanager
async def worker_pool(packed_bytes: int, count: int = 2) -> AsyncIterator[WorkerPool]:
    """Open a pool for lists of this size: spawned processes, or threads if the lists are small."""
    if packed_bytes < _MIN_BYTES_FOR_PROCESSES:
        pool = WorkerPool(ThreadPoolExecutor(count), 1)
    else:
        executor = ProcessPoolExecutor(
            count, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare_worker
        )
        # Start the processes while this one prepares their work.
        for _ in range(count):
            executor.submit(_do_nothing)
        pool = WorkerPool(executor, count)
    try:
        yield pool
    finally:
        pool.close()


def _prepare_worker() -> None:
    # Records are many and hardly ever in reference cycles, so frequent collections are wasted.
    gc.set_threshold(10_000)
    end_with_parent()


def _do_nothing() -> None:
    return


def map_large_arrays() -> None:
    """Have glibc map large arrays outside of the heap, where they would leave holes.

    By default glibc raises its threshold with each mapped block that is freed. Python uses the C
    library's allocator for large blocks; other C libraries are left alone.
    """
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_MMAP_THRESHOLD, _LARGE_ARRAY)


def release_memory() -> None:
    """Return free memory to the system, where the C library is glibc."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
