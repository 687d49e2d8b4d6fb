"""Returns freed memory at the end of a task.

Within a task, freed memory stays in the process, for the next column (session.py). Spark alternates
between its idle Python workers, of which there are more than cores: each would keep as much memory
as its largest task used.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import pyarrow as pa


def return_freed() -> None:
    """Returns freed memory of this process to the system, as far as its allocators can."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Returns glibc's function; None with another C library, which has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
