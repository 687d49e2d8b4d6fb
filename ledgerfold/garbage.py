"""Runs the cyclic garbage collector less often, for work that creates many objects but no cycles.

>>> with garbage_kept():
...     gc.isenabled()
False
>>> with searched_rarely():
...     gc.get_threshold()[0]
100000
>>> gc.isenabled(), gc.get_threshold()[0]
(True, 700)
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Objects that were created, and still exist, since the last search.
_RARELY = 100_000


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Searches for none within the block: for imports, which otherwise take a tenth longer."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def searched_rarely() -> Iterator[None]:
    """Searches for little within the block: for many messages, whose receipts are awaited."""
    before = gc.get_threshold()
    gc.set_threshold(_RARELY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
