"""What a sync needed goes back to the system, instead of into the allocator's stock.

Python's allocator is the C library's for everything large. Elsewhere than on glibc nothing is done.
"""

import ctypes

_MMAP_THRESHOLD = -3
# Above the blocks of which a list is read: those are better kept.
_LARGE = 4 << 20

_LIBRARY = ctypes.CDLL(None)


def map_large_arrays() -> None:
    """Fix from which size on memory is mapped by itself: glibc moves it up with each one it frees.

    Else the arrays of a million taxpayers are taken from the heap, and leave holes in it.
    """
    if hasattr(_LIBRARY, "mallopt"):
        _LIBRARY.mallopt(_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Give the system all that is free, for as long as what follows may take."""
    if hasattr(_LIBRARY, "malloc_trim"):
        _LIBRARY.malloc_trim(0)
