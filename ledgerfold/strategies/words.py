"""The explanations of a strategy's class: the result of its `explain` for two messages.

    >>> class Longest:
    ...     def explain(self, left, right):
    ...         return f"{len(right)} letters\\nagainst {len(left)}"
    >>> words_of(Longest(), "abc", "d")
    '1 letters against 3'
    >>> words_of(object(), "abc", "d") is None
    True

The result is cut to a line of WORDS_MAX characters; an error is reported in its place, and has no
other effect.
"""

from __future__ import annotations

from typing import Any, Final

from ledgerfold.strategies.loading import RAISED, describe_error

WORDS_MAX: Final = 300


def has_words(strategy: Any) -> bool:
    return callable(getattr(strategy, "explain", None))


def words_of(strategy: Any, left: Any, right: Any) -> str | None:
    """Returns the explanation, or None. `left`: the previous message, `right`: the current one."""
    if not has_words(strategy):
        return None
    try:
        answer = strategy.explain(left, right)
    except RAISED as error:  # user code may raise anything
        if isinstance(error, MemoryError):
            raise
        return f"(its explain raised {describe_error(error)})"
    if answer is None:
        return None
    if not isinstance(answer, str):
        return f"(its explain returned {type(answer).__name__}, not a string)"
    # Only the part of a long text that may be shown is processed.
    line = " ".join(answer[: 4 * WORDS_MAX].split())
    line = line.encode(errors="replace").decode()
    if len(line) > WORDS_MAX:
        line = line[: WORDS_MAX - 1] + "…"
    return line or None
