"""The heap of the C library, which keeps freed memory or returns it to the system (glibc).

With another C library (musl, macOS) these functions do nothing. Source: mallopt(3), malloc_trim(3).

    >>> return_freed()
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

# Free memory that stays at the top of the heap.
_KEPT_BYTES = 32 * 1024 * 1024
# Larger blocks are mapped, and unmapped when they are freed.
_HEAP_BLOCK_BYTES = 16 * 1024 * 1024
_PADDING_BYTES = 4 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed() -> None:
    """Sets the allocator's thresholds, so that freed memory is kept for the next frame.

    Frames of 1 MiB are allocated and freed continually. By default glibc returns the pages of each
    frame to the system and gets new, zeroed pages for the next one, which takes more time than all
    other work of a read.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TOP_PAD, _PADDING_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)


def return_freed() -> None:
    """Returns freed memory to the system, also below memory that is in use. May take 10 ms."""
    malloc_trim = _function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


@functools.cache
def _function(name: str) -> Callable[..., int] | None:
    """Returns this function of the C library; None if it has none of that name."""
    return getattr(ctypes.CDLL(None), name, None)
