"""A strategy that no product has, and how tests ask one without a log.

FIRST, in a separate module, so that Spark's workers find its functions by name: each key's first
value. Tombstones are nothing to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random

import numpy as np

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import Codes, Facts, Folded, FragmentColumns, Strategy
from tests.model.strategy_model import Message

_NONE = np.iinfo(np.int64).max
# The names of keys as numbers.
Keys = Integers


def begin_first(codes: Codes, facts: Facts, key_count: int) -> Folded:
    """The position of a value."""
    positions = np.where(facts.is_value, facts.positions, _NONE)
    folded = join_first(codes, (positions,), key_count)
    tombstones = int(np.count_nonzero(~facts.is_value))
    return folded._replace(removed_events=folded.removed_events + tombstones)


def join_first(codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
    (positions,) = columns
    first = np.full(key_count, _NONE, np.int64)
    np.minimum.at(first, codes, positions)
    lost = np.count_nonzero(positions != _NONE) - np.count_nonzero(first != _NONE)
    return Folded((first,), int(lost))


def first_values(columns: FragmentColumns) -> Integers:
    (positions,) = columns
    kept: Integers = positions[positions != _NONE]
    return kept


FIRST = Strategy("first", 3, begin_first, join_first, first_values)


def columns_of(messages: Sequence[Message]) -> tuple[Keys, Facts]:
    """Returns the columns of messages that all have a key; the position of each is its index."""
    keys = np.array([int.from_bytes(message.key or b"") for message in messages], np.int64)
    return keys, Facts(
        np.arange(len(messages), dtype=np.int64),
        np.array([bool(message.value) for message in messages], np.bool_),
        np.array([message.event_time_ms for message in messages], np.int64),
        np.array([message.is_alone for message in messages], np.bool_),
        np.array([message.publish_time_ms for message in messages], np.int64),
    )


def fold(
    strategy: Strategy, messages: Sequence[Message], cuts: Iterable[int] = (), seed: int = 0
) -> tuple[list[int], int]:
    """Survivors and removed events. `cuts`: where stretches end; some are joined first."""
    keys, facts = columns_of(messages)
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < len(messages)}), len(messages)]
    parts, removed = [], 0
    for start, end in pairwise(bounds):
        found, codes = np.unique(keys[start:end], return_inverse=True)
        folded = strategy.begin(codes, facts.where(np.arange(start, end)), len(found))
        parts.append((_keys(found, folded), folded.fragments))
        removed += folded.removed_events
    random = Random(seed)
    # First neighbours, as the law demands, then all; the rows of each in any order.
    for is_all in (False, True):
        count = len(parts) if is_all else random.randint(1, len(parts))
        found_keys, columns = _together(parts[:count], random)
        found, codes = np.unique(found_keys, return_inverse=True)
        folded = strategy.join(codes, columns, len(found))
        parts[:count] = [(_keys(found, folded), folded.fragments)]
        removed += folded.removed_events
    ((_, fragments),) = parts
    return sorted(strategy.survivors(fragments).tolist()), removed


def _together(
    parts: Sequence[tuple[Keys, FragmentColumns]], random: Random
) -> tuple[Keys, FragmentColumns]:
    keys = np.concatenate([keys for keys, _ in parts])
    columns = zip(*(columns for _, columns in parts), strict=True)
    order = np.array(random.sample(range(len(keys)), len(keys)), np.int64)
    return keys[order], tuple(np.concatenate(column)[order] for column in columns)


def _keys(found: Keys, folded: Folded) -> Keys:
    return found if folded.codes is None else found[folded.codes]
