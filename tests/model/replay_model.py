"""Compaction schedules applied to a list of entries: the expected results of
compactor/what_if/replay.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Published(NamedTuple):
    """A message of the list; `size_bytes`: its share of its entry."""

    key: str | None
    is_value: bool
    size_bytes: int


class PublishedEntry(NamedTuple):
    time_ms: int
    messages: list[Published]

    @property
    def size_bytes(self) -> int:
        return sum(message.size_bytes for message in self.messages)


class Outcome(NamedTuple):
    runs: int
    bytes_read: int
    bytes_rewritten: int
    space_peak: int
    space_mean: float
    rewind_mean: float


def compacted(messages: Sequence[Published], retain_null_key: bool) -> list[Published]:
    """Compacts by publishing order: the last message of each key, if it is a value."""
    last = {message.key: at for at, message in enumerate(messages)}
    kept = []
    for at, message in enumerate(messages):
        is_last = message.is_value and last[message.key] == at
        if retain_null_key if message.key is None else is_last:
            kept.append(message)
    return kept


def play(
    entries: Sequence[PublishedEntry],
    retain_null_key: bool,
    *,
    threshold_bytes: int | None = None,
    interval_ms: int = 1,
) -> Outcome:
    """Replays entry by entry, run by run."""
    view: list[Published] = []
    backlog: list[Published] = []
    runs = read = rewritten = peak = 0
    space, lasted = [], []
    clock = [max(each.time_ms for each in entries[: at + 1]) for at in range(len(entries))]
    periods = [(time_ms - clock[0]) // interval_ms for time_ms in clock]
    for at, entry in enumerate(entries):
        backlog += entry.messages
        is_last = at + 1 == len(entries)
        if threshold_bytes is not None:
            is_due = _size(backlog) > threshold_bytes
        else:
            is_due = not is_last and periods[at] != periods[at + 1]
        peak = max(peak, 0 if is_due else _size(view) + _size(backlog))
        if is_due:
            before = view + backlog
            view, backlog = compacted(before, retain_null_key), []
            runs, read, rewritten = runs + 1, read + _size(before), rewritten + _size(view)
            peak = max(peak, _size(before) + _size(view))
        space.append(_size(view) + _size(backlog))
        lasted.append(0 if is_last else clock[at + 1] - clock[at])
    weights = lasted if any(lasted) else [1] * len(space)
    total = sum(size * weight for size, weight in zip(space, weights, strict=True))
    return Outcome(
        runs,
        read,
        rewritten,
        peak,
        total / sum(weights),
        sum(space) / len(space),
    )


def _size(messages: Sequence[Published]) -> int:
    return sum(message.size_bytes for message in messages)
