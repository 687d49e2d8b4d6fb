"""Suggestions for mistyped names.

>>> did_you_mean("topcis", ["topics", "tenants"])
' Did you mean topics?'
"""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns a question with the names that are close, or end with " NAME"; "" without any."""
    # Imported after a typo only, because it takes time.
    from difflib import SequenceMatcher, get_close_matches

    names = list(names)
    similar = [each for each in names if each.endswith(f" {name}")]
    similar = similar or get_close_matches(name, names, n=3)
    # Only those that are nearly as close as the closest.
    close = [SequenceMatcher(None, name, each).ratio() for each in similar]
    similar = [each for each, ratio in zip(similar, close, strict=True) if ratio > max(close) - 0.2]
    return f" Did you mean {' or '.join(similar)}?" if similar else ""
