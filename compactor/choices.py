"""What a strategy of one's own says of the messages of a key, for people: its `explain`.

In the process of a trial (trial_process.py). The class is asked about one message after the other
as a run asks it, and its `explain` where something stands. `handle_skipped` is not called.

    >>> from ledgerfold.compactor.strategies.watch import DEFAULT_LIMITS
    >>> class Longest:
    ...     def should_keep_left(self, previous, current):
    ...         return previous is not None and len(previous.value) > len(current.value)
    ...     def explain(self, left, right):
    ...         return f"{len(right.value)} letters, and {len(left.value)} stood"
    >>> said = [Said("k", (1, at, -1), {"value": value}) for at, value in enumerate([b"abc", b"d"])]
    >>> told(Longest(), said, [True, True], Watch(DEFAULT_LIMITS))
    {'choices': [[0, 1, '1 letters, and 3 stood']]}
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from ledgerfold.compactor.strategies.own import at
from ledgerfold.compactor.strategies.watch import Watch
from ledgerfold.strategies.loading import RAISED, said
from ledgerfold.strategies.strategic import READS
from ledgerfold.strategies.words import has_words, words_of


class Said:
    """As ledgerfold.strategies.StrategicMessage; of its parts those that are read."""

    def __init__(self, key: str, message_id: tuple[int, int, int], parts: dict[str, Any]) -> None:
        self.key, self.message_id = key, message_id
        self.__dict__.update(parts)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the class does not name {name!r} in what it `reads`")


def messages_of(strategy: Any, given: Sequence[dict[str, Any]]) -> list[Said]:
    """From what came as JSON."""
    reads = set(getattr(strategy, "reads", READS))
    found = []
    for each in given:
        parts = {**each, "value": base64.b64decode(each["value"])}
        kept = {name: parts[name] for name in READS if name in reads}
        found.append(Said(each["key"], tuple(each["message_id"]), kept))
    return found


def told(
    strategy: Any, messages: Sequence[Said], is_value: Sequence[bool], watch: Watch
) -> dict[str, Any]:
    """`choices`: who stood, who came, and the words. `why` there are no more. Raises Exceeded."""
    choices: list[list[Any]] = []
    if not has_words(strategy):
        return {"choices": choices}
    standing: int | None = None
    for number, current in enumerate(messages):
        previous = None if standing is None else messages[standing]
        with watch.asking(current):
            try:
                keeps_left = strategy.should_keep_left(previous, current)
            except RAISED as error:  # a person's code: it may raise anything
                if isinstance(error, MemoryError):
                    raise
                return {"choices": choices, "why": f"{said(error)}, {at(current)}"}
            words = None if previous is None else words_of(strategy, previous, current)
        if words:
            choices.append([standing, number, words])
        if not keeps_left:
            standing = number if is_value[number] else None
    return {"choices": choices}
