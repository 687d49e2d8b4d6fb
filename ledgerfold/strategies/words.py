"""The words of a strategy's class: what its `explain` says of two messages, as `explain` shows it.

    >>> class Longest:
    ...     def explain(self, left, right):
    ...         return f"{len(right)} letters\\nagainst {len(left)}"
    >>> words_of(Longest(), "abc", "d")
    '1 letters against 3'
    >>> words_of(object(), "abc", "d") is None
    True

Whatever it answers is cut to a line of WORDS_MAX characters; what goes wrong in it is told in their
place, and nothing else comes of it.
"""

from __future__ import annotations

from typing import Any, Final

from ledgerfold.strategies.loading import RAISED, said

WORDS_MAX: Final = 300


def has_words(strategy: Any) -> bool:
    return callable(getattr(strategy, "explain", None))


def words_of(strategy: Any, left: Any, right: Any) -> str | None:
    """`left`: the message that stands, `right`: the one that came. None: it says nothing."""
    if not has_words(strategy):
        return None
    try:
        answer = strategy.explain(left, right)
    except RAISED as error:  # a person's code: it may raise anything
        if isinstance(error, MemoryError):
            raise
        return f"(its explain raised {said(error)})"
    if answer is None:
        return None
    if not isinstance(answer, str):
        return f"(its explain answered {type(answer).__name__}, which is no text)"
    # No more of a long text is looked at than may be shown.
    line = " ".join(answer[: 4 * WORDS_MAX].split())
    line = line.encode(errors="replace").decode()
    if len(line) > WORDS_MAX:
        line = line[: WORDS_MAX - 1] + "…"
    return line or None
