"""Limits the steps of one request's comparisons, because clients provide the definitions.

>>> steps = Steps()
>>> steps.take(depth=3, count=STEPS_MAX)
>>> steps.take(depth=3)
Traceback (most recent call last):
ledgerfold.errors.InvalidSchema: Invalid schema definition data for AVRO schema: ...
"""

from __future__ import annotations

from ledgerfold.storage.errors import InvalidSchema

# About a second. All versions of a topic together have at most 4 MiB.
STEPS_MAX = 1_000_000
DEPTH_MAX = 150


class Steps:
    """Counts the steps of all comparisons of one request."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def take(self, depth: int, count: int = 1) -> None:
        """Raises InvalidSchema after STEPS_MAX steps, or deeper than DEPTH_MAX."""
        self.count += count
        if self.count > STEPS_MAX or depth > DEPTH_MAX:
            raise InvalidSchema("AVRO", "it is too complex to be compared with earlier versions.")
