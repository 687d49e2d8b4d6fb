"""Phase one, second half: a task joins its bucket's fragments into the surviving positions.

The fold is that of the scan, over fragments instead of messages. The survivors then go to the copy
tasks that own their segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import from_arrow
from ledgerfold.compactor.job.rows import Counts, Failure, Fragments, Positions, Row, by_task
from ledgerfold.compactor.positions import ROW_BITS, Integers
from ledgerfold.compactor.strategies.strategy import FragmentColumns, Strategy


def merge(rows: Iterable[Row], strategy: Strategy, first_ordinals: Sequence[int]) -> Iterator[Row]:
    """Yields rows for the copy tasks: Positions, ascending within each row, and Counts.

    `first_ordinals`: the first segment of each copy task.
    """
    keys: list[pa.BinaryArray] = []
    fragments: list[FragmentColumns] = []
    for row in rows:
        match row[1]:
            case Fragments() as content:
                key_column, fragment_columns = content.columns
                keys.append(key_column)
                fragments.append(fragment_columns)
            case Positions() as content:
                yield from to_copy_tasks(content.values, first_ordinals)
            case Failure() as content:
                for task in range(len(first_ordinals)):
                    yield task, content
                return
            case Counts() as content:
                yield 0, content
    if keys:
        joined = tuple(map(np.concatenate, zip(*fragments, strict=True)))
        yield from _merged(pa.concat_arrays(keys), joined, strategy, first_ordinals)


def _merged(
    keys: pa.BinaryArray,
    fragments: FragmentColumns,
    strategy: Strategy,
    first_ordinals: Sequence[int],
) -> Iterator[Row]:
    encoded = keys.dictionary_encode()
    count = len(encoded.dictionary)
    folded = strategy.join(from_arrow(encoded.indices), fragments, count)
    positions = strategy.survivors(folded.fragments)
    positions.sort()
    yield from to_copy_tasks(positions, first_ordinals)
    yield 0, Counts(removed_events=folded.removed_events, keys=count)


def to_copy_tasks(positions: Integers, first_ordinals: Sequence[int]) -> Iterator[Row]:
    """Sends each of the ascending `positions` to the task that copies it."""
    for task, places in by_task(positions, np.array(first_ordinals, np.int64) << ROW_BITS):
        yield task, Positions.of(positions[places])
