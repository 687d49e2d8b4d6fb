"""The second task of the map: joins the fragments of a bucket and selects the surviving records.

In the mapped range the last record of each key survives. In the clean part, which is not mapped,
records survive unless the map has a later offset for their key. Records after the range survive in
any case and are not considered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import to_arrow
from ledgerfold.compactor.job.rows import Fragments, Positions
from ledgerfold.compactor.kafka.distinct import Keys
from ledgerfold.compactor.kafka.rows import Distinct, Firsts, Row, Shown
from ledgerfold.compactor.kafka.scan import NOT_MAPPED
from ledgerfold.compactor.positions import Booleans, Integers


def merge(rows: Iterable[Row], firsts_max: int, shown_max: int = 0) -> Iterator[Row]:
    """Yields Positions, Distinct, Firsts and Shown (the smallest of each), and other rows as they
    are.
    """
    keys: list[pa.BinaryArray] = []
    columns: list[tuple[Integers, Integers]] = []
    for row in rows:
        content = row[1]
        if isinstance(content, Fragments):
            key_column, (last, first) = content.columns
            keys.append(key_column)
            columns.append((last, first))
        else:
            yield row
    if not keys:
        return
    column = pa.concat_arrays(keys)
    groups = Keys.of(column).grouped()
    last, first = (np.concatenate(each)[groups.rows] for each in zip(*columns, strict=True))
    codes = groups.numbers
    is_mapped = first != NOT_MAPPED
    # The highest offset of each key's fragments, which come in any order.
    starts = np.flatnonzero(groups.is_first)
    mapped_last = np.maximum.reduceat(np.where(is_mapped, last, -1), starts)
    stays_unmapped = ~is_mapped & (mapped_last[codes] < last)
    found = mapped_last[mapped_last >= 0]
    yield 0, Positions.of(np.sort(np.concatenate((found, last[stays_unmapped]))))
    yield 0, Distinct(len(found))
    if shown_max and len(found):
        by_offset = np.argsort(mapped_last, kind="stable")
        shown = by_offset[len(mapped_last) - len(found) :][:shown_max]
        held = column.take(to_arrow(groups.first[shown])).to_pylist()
        yield 0, Shown(tuple(held), tuple(mapped_last[shown].tolist()))
    if firsts_max and len(found):
        yield 0, Firsts(_firsts(starts, first, is_mapped)[:firsts_max].tobytes())


def _firsts(starts: Integers, first: Integers, is_mapped: Booleans) -> Integers:
    never = np.iinfo(np.int64).max
    firsts = np.minimum.reduceat(np.where(is_mapped, first, never), starts)
    return np.sort(firsts[firsts != never])
