"""Tells the C library to keep freed memory for the next frame.

Frames of 1 MiB come and go all the time. As it is set at the start, glibc gives each one's pages
back to the system and gets new ones, zeroed, for the next: more time than all else that a read
takes. With more slack they are used again.

    >>> keep_freed_memory()  # once, when the process starts

Bounds: KEPT_BYTES of free memory at the top of the heap. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes

KEPT_BYTES = 32 * 1024 * 1024
# Larger blocks are mapped, and unmapped when they are freed.
_HEAP_BLOCK_BYTES = 16 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> None:
    """Does nothing where the C library has no mallopt (musl, macOS)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TOP_PAD, 4 * 1024 * 1024)
        mallopt(_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
