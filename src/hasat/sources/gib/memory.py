"""Large arrays go back to the system when they are freed, instead of into the allocator's stock."""

import ctypes

_MMAP_THRESHOLD = -3
# Above the blocks of which a list is read: those are better kept.
_LARGE = 4 << 20


def return_large_arrays() -> None:
    """Fix from which size on memory is mapped by itself: glibc moves it up with each one it frees.

    The arrays of a million taxpayers would stay as holes in the heap, for as long as a worker runs.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(_MMAP_THRESHOLD, _LARGE)
