"""Allocator settings that keep freed memory for the next frame.

Frames of 1 MiB are allocated and freed continually. By default glibc returns the pages of each
frame to the system and gets new, zeroed pages for the next one, which takes more time than all
other work of a read. With more slack they are reused.

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
    """Sets the allocator's thresholds.

    Does nothing if the C library has no mallopt (musl, macOS).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TOP_PAD, 4 * 1024 * 1024)
        mallopt(_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
