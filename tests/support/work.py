"""Work counted in calls of functions, whose number no other load of the machine changes.

>>> calls_of(lambda: [abs(each) for each in range(100)]) // 100
1
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls_of(work: Callable[[], object]) -> int:
    """Returns the number of calls that `work` makes, of functions in Python and in C."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
