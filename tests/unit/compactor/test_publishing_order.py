"""The strategy's fold: any way of cutting a history gives the same survivors and the same count."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.publishing_order import begin, join, survivors
from ledgerfold.compactor.strategies.strategy import Facts
from tests.model.strategy_model import Message, publishing_order

# (key 0..3, whether a value)
HISTORIES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40)


def _begin(codes: Integers, facts: Facts) -> tuple[Integers, Integers, int]:
    """With keys renumbered so that each occurs: keys, one fragment for each, removed events."""
    keys, dense = np.unique(codes, return_inverse=True)
    folded = begin(dense, facts, len(keys))
    return keys, folded.fragments[0], folded.removed_events


def _join(codes: Integers, fragments: Integers) -> tuple[Integers, Integers, int]:
    keys, dense = np.unique(codes, return_inverse=True)
    folded = join(dense, (fragments,), len(keys))
    return keys, folded.fragments[0], folded.removed_events


def _columns(history: list[tuple[int, bool]]) -> tuple[Integers, Facts]:
    codes: Integers = np.array([key for key, _ in history], np.int64)
    is_value: NDArray[np.bool_] = np.array([value for _, value in history], np.bool_)
    return codes, Facts(np.arange(len(history), dtype=np.int64), is_value)


def _model(history: list[tuple[int, bool]]) -> tuple[list[int], int]:
    outcome = publishing_order(
        [Message(b"%d" % key, b"v" if value else b"") for key, value in history]
    )
    return outcome.survivors, outcome.removed_events


@given(HISTORIES)
def test_one_fold_equals_the_model(history: list[tuple[int, bool]]) -> None:
    """A history folded at once leaves what the map of keys leaves."""
    _, fragments, removed = _begin(*_columns(history))
    assert (sorted(survivors((fragments,)).tolist()), removed) == _model(history)


@given(HISTORIES, st.sets(st.integers(0, 40)), st.randoms())
def test_chunking_and_order_do_not_change_the_result(
    history: list[tuple[int, bool]], cuts: set[int], random: st.DataObject
) -> None:
    """Chunks folded apart, then together in any order: the same survivors, the same count."""
    codes, facts = _columns(history)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(history)), len(history)]
    parts = [
        _begin(codes[start:end], Facts(facts.positions[start:end], facts.is_value[start:end]))
        for start, end in pairwise(bounds)
    ]
    random.shuffle(parts)  # type: ignore[attr-defined]
    _, joined, removed = _join(
        np.concatenate([keys for keys, _, _ in parts]),
        np.concatenate([part for _, part, _ in parts]),
    )
    total = removed + sum(count for _, _, count in parts)
    assert (sorted(survivors((joined,)).tolist()), total) == _model(history)


@pytest.mark.parametrize(
    ("history", "left", "events"),
    [
        ([(0, True), (0, True), (0, False)], [], 2),
        ([(0, True), (0, False), (0, True)], [2], 1),
        ([(0, False)], [], 1),
        ([(0, True), (1, True), (1, False)], [0], 1),
        ([], [], 0),
    ],
)
def test_removed_events_are_counted_as_in_pulsar(
    history: list[tuple[int, bool]], left: list[int], events: int
) -> None:
    """The worked histories of Pulsar's rules, with a tombstone counting one event."""
    _, fragments, removed = _begin(*_columns(history))
    assert survivors((fragments,)).tolist() == left
    assert removed == events
