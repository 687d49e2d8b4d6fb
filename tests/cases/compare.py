"""Compares answers with their expectations, and describes the differences.

Entries have names, E0, E1, ... in the order of publishing: ids are compared and shown by them.

    >>> names = Names()
    >>> names.add([7, 0, -1])
    >>> names.of([7, 0, 2]), names.of([-1, -1, -1]), names.of_position("7:-1")
    ('E0.2', 'none', 'before-E0')
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.cases.logs import LogText
from tests.cases.model import (
    Count,
    Expectation,
    Message,
    Messages,
    Order,
    Refusal,
    Relation,
    Saved,
    Value,
)
from tests.cases.writing import SHORT, message_text, word

_POSITION = re.compile(r"(-?\d+):(-?\d+)")
# The parts of a message that may differ when it is delivered again.
_PASSING = {"handle", "redelivery"}
Received = dict[str, Any]


class Names:
    """The entries of one topic."""

    def __init__(self) -> None:
        self._ids: list[list[int]] = []
        self._numbers: dict[tuple[int, int], int] = {}

    def add(self, at: list[int]) -> None:
        """Names the next entry; `at` is the id of a message in it."""
        self._numbers[at[0], at[1]] = len(self._ids)
        self._ids.append(at)

    def of(self, at: list[int]) -> str:
        """Returns the name of a message's id."""
        entry = self.of_position(f"{at[0]}:{at[1]}")
        return entry if at[2] < 0 else f"{entry}.{at[2]}"

    def of_position(self, text: str) -> str:
        """Returns the name of "ledger:entry"."""
        match = _POSITION.fullmatch(text)
        if match is None:
            return text
        ledger, entry = map(int, match.groups())
        if (ledger, entry) in self._numbers:
            return f"E{self._numbers[ledger, entry]}"
        if (ledger, entry) == (-1, -1):
            return "none"
        if entry == -1:
            later = [number for at, number in self._numbers.items() if at[0] >= ledger]
            return f"before-E{min(later)}" if later else "at-end"
        return text

    def id(self, name: str) -> list[int] | None:
        """Returns the id that "E2" or "E2.1" denotes; None if there is no such entry yet."""
        entry, _, index = name[1:].partition(".")
        if int(entry) >= len(self._ids):
            return None
        ledger, entry_id, _, *partition = self._ids[int(entry)]
        return [ledger, entry_id, int(index or -1), *partition]


class Difference(NamedTuple):
    expected: str
    got: str


class StepFailed(Exception):
    """The step cannot be executed, or its answer is not as expected."""

    def __init__(self, why: str, difference: Difference | None = None) -> None:
        super().__init__(why)
        self.difference = difference


class Judge(NamedTuple):
    """The context of a comparison: the names of the topic, and saved values.

    `limit`: longer keys and values are cut for display.
    """

    names: Names
    saved: dict[str, Any]
    limit: int | None = SHORT

    def differs(self, expected: Expectation, answer: Any) -> Difference | None:
        """Returns a description of the difference; None if the answer is as expected."""
        match expected:
            case Messages():
                return self._messages(expected, answer)
            case Count():
                right = _count(answer) == expected.count
                wanted = f"{expected.count} messages"
            case Value():
                right = _compares(expected.sign, self.show(answer), expected.text)
                wanted = f"{expected.sign} {expected.text}".removeprefix("= ")
            case Saved():
                saved = self.saved[expected.name]
                right = _relates(expected.relation, lasting(answer), lasting(saved))
                wanted = f"{expected.relation.value} {expected.name}: {self.show(saved)}"
            case Refusal():
                right, wanted = False, f"error {expected.code}".strip()
            case LogText():
                return self._log(expected, answer)
        return None if right else Difference(wanted, self.show(answer))

    def write(self, answer: Any) -> str:
        """Formats an answer as it may follow `->`."""
        shown = self.show(answer)
        is_other = isinstance(answer, dict | list) and not is_messages(answer) and not is_id(answer)
        return word(shown) if isinstance(answer, str) or is_other else shown

    def show(self, answer: Any) -> str:
        """Formats a value in the notation; texts without their quotes."""
        match answer:
            case None:
                return "null"
            case bool():
                return str(answer).lower()
            case str():
                return self.names.of_position(answer)
            case LogText():
                return str(answer.shown_as(None))
            case _ if is_id(answer):
                return self.names.of(answer)
            case _ if is_messages(answer):
                return "  ".join(map(self.message, answer)) or "nothing"
            case _:
                return json.dumps(answer, ensure_ascii=False)

    def message(self, received: Received) -> str:
        """ "E2.1 a=1@5{p:q}"."""
        return message_text(self._as_message(received, None), self.limit)

    def _messages(self, expected: Messages, answer: Any) -> Difference | None:
        if not is_messages(answer):
            return Difference("messages", self.show(answer))
        left = list(answer)
        missing = []
        for wanted in expected.messages:
            found = left[:1] if expected.order is Order.EXACT else left
            hit = next((each for each in found if self._as_message(each, wanted) == wanted), None)
            if hit is None:
                missing.append(wanted)
                if expected.order is Order.EXACT:
                    break
            else:
                left.remove(hit)
        if not missing and (expected.order is Order.AT_LEAST or not left):
            return None
        order = "" if expected.order is Order.EXACT else f"{expected.order.value}: "
        wanted_texts = (message_text(each, self.limit) for each in expected.messages)
        return Difference(order + ("  ".join(wanted_texts) or "nothing"), self.show(answer))

    def _log(self, expected: LogText, answer: Any) -> Difference | None:
        if isinstance(answer, LogText) and answer.is_as(expected):
            return None
        is_log = isinstance(answer, LogText)
        got = str(answer.shown_as(expected)) if is_log else self.show(answer)
        return Difference(str(expected), got)

    def _as_message(self, received: Received, wanted: Message | None) -> Message:
        """Returns the message as compared: the parts that `wanted` has; all parts if that is
        None.
        """
        at = received.get("id")
        return Message(
            key=received["key"],
            value=_value(received, wanted),
            id=self.names.of(at) if at and (wanted is None or wanted.id) else None,
            is_byte_key=wanted is not None and wanted.is_byte_key,
            event_time_ms=_if_wanted(wanted, "event_time_ms", lambda: received.get("eventTime", 0))
            or None,
            properties=_if_wanted(wanted, "properties", lambda: received.get("props", {})) or None,
        )


def is_id(answer: Any) -> bool:
    return isinstance(answer, list) and len(answer) >= 3 and all(type(n) is int for n in answer)


def is_messages(answer: Any) -> bool:
    return isinstance(answer, list) and all(
        isinstance(each, dict) and "key" in each and "value" in each for each in answer
    )


def _count(answer: Any) -> int:
    """Returns the number of messages or records; -1: the answer is something else."""
    if isinstance(answer, LogText):
        return sum(len(each.records) for each in answer.batches)
    return len(answer) if is_messages(answer) else -1


def lasting(answer: Any) -> Any:
    """Returns an answer without the parts that may differ between deliveries."""
    if not is_messages(answer):
        return answer
    return [{name: each[name] for name in each.keys() - _PASSING} for each in answer]


def _value(received: Received, wanted: Message | None) -> bytes | None:
    if "valueB64" in received:
        return base64.b64decode(received["valueB64"])
    value: str | None = received["value"]
    if value is None:
        return None
    # From a broker that returns only text: bytes that are not text can no longer be distinguished.
    if wanted is not None and wanted.value and wanted.value.decode(errors="replace") == value:
        return wanted.value
    return value.encode()


def _if_wanted(wanted: Message | None, field: str, get: Callable[[], Any]) -> Any:
    return get() if wanted is None or getattr(wanted, field) is not None else None


def _relates(relation: Relation, answer: Any, saved: Any) -> bool:
    if relation is Relation.PART:
        return is_messages(answer) and all(each in saved for each in answer)
    return (answer == saved) is (relation is Relation.SAME)


def _compares(sign: str, got: str, wanted: str) -> bool:
    if sign == "contains":
        return wanted in got
    try:
        left, right = float(got), float(wanted)
    except ValueError:
        return sign == "=" and got == wanted
    return {
        "=": left == right,
        ">": left > right,
        ">=": left >= right,
        "<": left < right,
        "<=": left <= right,
    }[sign]
