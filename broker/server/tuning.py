"""Settings of the broker's process that libc and the kernel keep.

`tune` applies them, before the process has other threads: each thread inherits them. What a system
does not have is left out, without an error. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes

from ledgerfold.time_slices import set_time_slice

# Free memory that stays at the top of the heap.
_KEPT_BYTES = 32 * 1024 * 1024
# Larger blocks are mapped, and unmapped when they are freed.
_HEAP_BLOCK_BYTES = 16 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# The shortest slice that Linux grants.
SLICE_NS = 100_000


def tune() -> None:
    """Keeps freed memory, and asks for short time slices.

    Otherwise a publish waits for a whole slice of the compactor (1.4 ms on two cores) at each of
    the threads that it passes through.
    """
    keep_freed_memory()
    set_time_slice(SLICE_NS)


def keep_freed_memory() -> None:
    """Sets the allocator's thresholds, so that freed memory is kept for the next frame.

    Frames of 1 MiB are allocated and freed continually. By default glibc returns the pages of each
    frame to the system and gets new, zeroed pages for the next one, which takes more time than all
    other work of a read. Does nothing if the C library has no mallopt (musl, macOS).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TOP_PAD, 4 * 1024 * 1024)
        mallopt(_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
