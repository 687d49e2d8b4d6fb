"""The built-in message strategies, for runs and for table views.

>>> from collections import namedtuple
>>> Sample = namedtuple("Sample", "value properties")
>>> Numeric().should_keep_left(Sample(b"2", {}), Sample(b"1", {}))
True
>>> HeaderVersion("v").should_keep_left(Sample(b"x", {"v": "2"}), Sample(b"y", {"v": "10"}))
False
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from ledgerfold.strategies.strategic import StrategicMessage

Number = int | Decimal
# Each text has one way to match, so the time is linear in its length.
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_SHOWN_MAX: Final = 40
# Characters that float() and number() read alike: no exponents (they may be too large), no names.
_PLAIN: Final = b"+-.0123456789"


class Newest:
    """A strategy that keeps the message published last, as publishing-order does."""

    reads = ()

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        return False

    def explain(self, left: StrategicMessage, right: StrategicMessage) -> str:
        return "it was published later"


class KeepFirst:
    """A strategy that keeps the message published first, even if tombstones follow."""

    reads = ()

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        return previous is not None

    def explain(self, left: StrategicMessage, right: StrategicMessage) -> str:
        return "it was published first"


class Numeric:
    """A strategy that keeps the largest numeric value, the first among equals (Pulsar's example).

    A tombstone always removes its key, whatever the current value is. A value that is not a number
    is lower than every number, and equal to any other such value.
    """

    reads = ("value",)

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        value = current.value
        if previous is None or not value:
            return False
        standing = previous.value
        # If one float is larger, so is its number. Only if they are equal, or the text may be more
        # than digits, exact numbers are compared, which takes three times as long.
        if not (value.strip(_PLAIN) or standing.strip(_PLAIN)):
            try:
                rounded, rounded_standing = float(value), float(standing)
            except ValueError:
                pass
            else:
                if rounded != rounded_standing:
                    return rounded_standing > rounded
        new = number(value)
        if new is None:
            return True
        old = number(standing)
        return old is not None and old >= new

    def explain(self, left: StrategicMessage, right: StrategicMessage) -> str:
        if not right.value:
            return "a tombstone always wins"
        new, old = _shown(right.value), _shown(left.value)
        if number(right.value) is None:
            return f"{new} is not a number"
        if number(left.value) is None:
            return f"{old} is not a number, {new} is"
        is_larger = not self.should_keep_left(left, right)
        return f"{new} is {'larger' if is_larger else 'not larger'} than {old}"


class HeaderVersion:
    """A strategy that keeps the largest number in the property `property`, the last among equals.

    A message without it, or with a value that is not a number, loses against every message that has
    one. A tombstone is a message like any other: it removes its key only if it wins, and the next
    message then wins in any case.
    """

    reads = ("properties",)

    def __init__(self, property: str) -> None:
        self._name = property

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        if previous is None:
            return False
        old = self._version(previous)
        if old is None:
            return False
        new = self._version(current)
        return new is None or old > new

    def explain(self, left: StrategicMessage, right: StrategicMessage) -> str:
        old, new = (_shown(each.properties.get(self._name, "")) for each in (left, right))
        if self._version(left) is None:
            return f"the current {self._name} is not a number"
        if self._version(right) is None:
            return f"{self._name} is not a number, the current one is {old}"
        is_lower = self.should_keep_left(left, right)
        return f"{self._name} {new} is {'lower' if is_lower else 'not lower'} than {old}"

    def _version(self, message: StrategicMessage) -> Number | None:
        text = message.properties.get(self._name)
        return None if text is None else number(text)


ReadyMade = HeaderVersion | KeepFirst | Newest | Numeric
# The keys are the names of the strategies.
READY_MADE: Final[dict[str, type[ReadyMade]]] = {
    "newest": Newest,
    "numeric": Numeric,
    "keep-first": KeepFirst,
    "header-version": HeaderVersion,
}


def _shown(text: str | bytes) -> str:
    """Shortens a text for a sentence."""
    shown = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return shown if len(shown) <= _SHOWN_MAX else shown[: _SHOWN_MAX - 1] + "…"


def number(text: str | bytes) -> Number | None:
    """Parses an integer or decimal number exactly; returns None for anything else, infinity
    included.

    >>> number(b"12"), number("1e3"), number(" -0.10 "), number(b"1_000"), number("nan")
    (12, Decimal('1E+3'), Decimal('-0.10'), None, None)
    """
    if text.isdigit() and text.isascii() and len(text) <= 18:
        return int(text)
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent that is too large
        return None
