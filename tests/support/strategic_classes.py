"""Strategy classes that only tests have: all forms of message strategies, and failures.

They are in a separate module, so that Spark's workers find them by name.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ledgerfold.strategies.strategic import StrategicMessage

_Previous = StrategicMessage | None


class Everything:
    """Reads every part: the greatest of all in this order wins, of equal ones the first."""

    version = "7"

    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        return previous is not None and self._rank(previous) >= self._rank(current)

    def _rank(self, message: StrategicMessage) -> tuple[Any, ...]:
        return (
            message.properties.get("n", ""),
            message.event_time_ms,
            -message.publish_time_ms,
            message.value,
            message.key,
        )


class Stubborn:
    """Never accepts a value that begins with x, even as the first; remembers what it skips.

    A class attribute, because each task creates an instance.
    """

    reads = ("value",)
    skipped: ClassVar[list[tuple[str, bytes]]] = []

    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        return current.value.startswith(b"x")

    def handle_skipped(self, key: str, current: StrategicMessage) -> None:
        self.skipped.append((key, current.value))


class Raises:
    reads = ("value",)

    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        if current.value == b"two":
            raise LookupError("no such price\nat all")
        return False


class Leaves(Raises):
    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        raise SystemExit(0)


class _Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class RaisesWhatHasNoText(Raises):
    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        raise _Speechless


class RaisesWhenSkipping(Raises):
    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        return current.value == b"two"

    def handle_skipped(self, key: str, current: StrategicMessage) -> None:
        raise LookupError("no such price")


class Vague:
    reads = ("value",)

    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> Any:
        return current.value == b"two" and 1


class ReadsWhatItDoesNotSay:
    reads = ()

    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        return bool(current.properties)


class CannotBeMade:
    def __init__(self) -> None:
        raise OSError("no prices today")

    def should_keep_left(self, previous: _Previous, current: StrategicMessage) -> bool:
        return False


class ReadsWhatThereIsNot:
    reads = ("colour",)
