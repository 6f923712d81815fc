"""Keeping freed memory in the process, between the fragments of a batch.

Every fragment allocates and frees the same few megabytes. By default glibc returns such blocks to
the operating system, which zeroes them again page by page: in a run of many small fragments, a
third of the time.
"""

import ctypes
from functools import cache

# Parameters of mallopt, from malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 1 << 29  # free memory that stays at the top of the heap
_LARGEST_HEAP_BLOCK_BYTES = 1 << 25  # the largest block served from the heap that glibc allows


@cache
def keep_freed_memory() -> bool:
    """Set the C library's allocator to keep freed memory in the process, for reuse.

    This saves time only; no number depends on it. The settings are made once in a process.

    Returns:
        True if the C library accepted both settings. False where it has no ``mallopt``, as outside
        of glibc, or refuses one.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    if not mallopt(_M_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK_BYTES):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
