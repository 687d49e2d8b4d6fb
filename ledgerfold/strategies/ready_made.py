"""Strategies that decide message by message, ready-made: for runs and for table views.

>>> from collections import namedtuple
>>> Said = namedtuple("Said", "value properties")
>>> Numeric().should_keep_left(Said(b"2", {}), Said(b"1", {}))
True
>>> HeaderVersion("v").should_keep_left(Said(b"x", {"v": "2"}), Said(b"y", {"v": "10"}))
False
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from ledgerfold.strategies.strategic import StrategicMessage

Number = int | Decimal
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_SHOWN_MAX: Final = 40
# What floats and numbers read alike: no exponents (a number's may be too large), no names.
_PLAIN: Final = b"+-.0123456789"


class Newest:
    """The message published last wins, as with publishing-order."""

    reads = ()

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        return False

    def explain(self, left: StrategicMessage, right: StrategicMessage) -> str:
        return "it was published later"


class KeepFirst:
    """The message published first wins, whatever comes later, tombstones included."""

    reads = ()

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        return previous is not None

    def explain(self, left: StrategicMessage, right: StrategicMessage) -> str:
        return "it was published first"


class Numeric:
    """The value that is the largest number wins, of equal ones the first (Pulsar's example).

    A tombstone removes its key whatever stood there. A value that is no number counts as lower than
    every number, and as equal to another that is none.
    """

    reads = ("value",)

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        value = current.value
        if previous is None or not value:
            return False
        standing = previous.value
        # Floats of which one is larger are of numbers of which that one is. Only where they are the
        # same, or the text may be more than digits, is it worth the exact ones: thrice the time.
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
            return "a tombstone wins whatever stood"
        new, old = _shown(right.value), _shown(left.value)
        if number(right.value) is None:
            return f"{new} is no number"
        if number(left.value) is None:
            return f"{old} is no number, {new} is one"
        is_larger = not self.should_keep_left(left, right)
        return f"{new} is {'larger' if is_larger else 'no larger'} than {old}"


class HeaderVersion:
    """The largest number in the property `property` wins, of equal ones the last.

    A message without it, or with something that is no number, loses against every message that has
    it. A tombstone is a message like any other: it removes its key only when it wins, and what
    comes after that finds nothing to lose against.
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
            return f"its {self._name} was no number"
        if self._version(right) is None:
            return f"{self._name} is no number, and was {old}"
        is_lower = self.should_keep_left(left, right)
        return f"{self._name} {new} is {'lower' if is_lower else 'not lower'} than {old}"

    def _version(self, message: StrategicMessage) -> Number | None:
        text = message.properties.get(self._name)
        return None if text is None else number(text)


def _shown(text: str | bytes) -> str:
    """As much of it as a sentence may hold."""
    shown = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return shown if len(shown) <= _SHOWN_MAX else shown[: _SHOWN_MAX - 1] + "…"


def number(text: str | bytes) -> Number | None:
    """A whole or a decimal number, without loss; None for what is none, infinity included.

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
    except InvalidOperation:  # an exponent that nobody can count with
        return None
