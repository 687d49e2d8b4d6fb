"""The explanations that a user-defined strategy gives for the messages of a key: its `explain`.

Runs in the process of a trial (sandbox_process.py). The class is asked about the messages in
sequence, as a run asks it, and its `explain` if there is a current message. `handle_skipped` is not
called.

    >>> from ledgerfold.compactor.strategies.watch import DEFAULT_LIMITS
    >>> class Longest:
    ...     def should_keep_left(self, previous, current):
    ...         return previous is not None and len(previous.value) > len(current.value)
    ...
    ...     def explain(self, left, right):
    ...         return f"{len(right.value)} letters, the current one has {len(left.value)}"
    >>> values = enumerate([b"abc", b"d"])
    >>> messages = [TrialMessage("k", (1, at, -1), {"value": value}) for at, value in values]
    >>> explain_choices(Longest(), messages, [True, True], Watch(DEFAULT_LIMITS))
    {'choices': [[0, 1, '1 letters, the current one has 3']]}
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from ledgerfold.compactor.strategies.watch import Watch
from ledgerfold.compactor.user_strategies.own import at
from ledgerfold.compactor.user_strategies.samples import TrialMessage
from ledgerfold.strategies.loading import RAISED, describe_error
from ledgerfold.strategies.strategic import READS
from ledgerfold.strategies.words import has_words, words_of


def messages_of(strategy: Any, given: Sequence[dict[str, Any]]) -> list[TrialMessage]:
    """Decodes messages from JSON."""
    reads = set(getattr(strategy, "reads", READS))
    found = []
    for each in given:
        parts = {**each, "value": base64.b64decode(each["value"])}
        kept = {name: parts[name] for name in READS if name in reads}
        found.append(TrialMessage(each["key"], tuple(each["message_id"]), kept))
    return found


def explain_choices(
    strategy: Any, messages: Sequence[TrialMessage], is_value: Sequence[bool], watch: Watch
) -> dict[str, Any]:
    """Returns `choices`: the current message, the new one, and the text of `explain`.

    `why`: the error that ended the list. Raises Exceeded.
    """
    choices: list[list[Any]] = []
    if not has_words(strategy):
        return {"choices": choices}
    standing: int | None = None
    for number, current in enumerate(messages):
        previous = None if standing is None else messages[standing]
        with watch.asking(current):
            try:
                keeps_left = strategy.should_keep_left(previous, current)
            except RAISED as error:  # user code may raise anything
                if isinstance(error, MemoryError):
                    raise
                return {"choices": choices, "why": f"{describe_error(error)}, {at(current)}"}
            words = None if previous is None else words_of(strategy, previous, current)
        if words:
            choices.append([standing, number, words])
        if not keeps_left:
            standing = number if is_value[number] else None
    return {"choices": choices}
