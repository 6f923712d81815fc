"""Keeping freed memory at hand between fragments.

Every fragment allocates and frees the same few megabytes. By default glibc returns such blocks to the operating system,
which hands them out again zeroed, page by page: on a run of many small fragments a third of the time went there.
"""

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_KEEP = 1 << 29  # bytes of free memory kept at the top of the heap
_LARGEST = 1 << 25  # the largest block served from the heap; glibc allows no more


@cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for reuse. True if it is one that can; harmless elsewhere."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _KEEP))
