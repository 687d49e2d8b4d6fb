"""The map, second half: a task joins the fragments of its bucket, and tells which records stay.

Of the range that is mapped the last record of each key stays; of what is not mapped, the clean
part, those whose key is not in the map with a later offset. What is behind the range is not asked:
it stays whatever its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.arrow_integers import from_arrow, to_arrow
from ledgerfold.compactor.kafka.rows import Distinct, Firsts, Row, Shown
from ledgerfold.compactor.kafka.scan import NOT_MAPPED
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.rows import Fragments, Positions


def merge(rows: Iterable[Row], firsts_max: int, shown_max: int = 0) -> Iterator[Row]:
    """Positions, Distinct, Firsts and Shown (as many of the smallest), and what others say."""
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
    codes_of = pa.concat_arrays(keys).dictionary_encode()
    codes, count = from_arrow(codes_of.indices), len(codes_of.dictionary)
    last, first = (np.concatenate(each) for each in zip(*columns, strict=True))
    is_mapped = first != NOT_MAPPED
    mapped_last = np.full(count, -1, np.int64)
    order = np.argsort(last[is_mapped], kind="stable")
    mapped_last[codes[is_mapped][order]] = last[is_mapped][order]
    stays_unmapped = ~is_mapped & (mapped_last[codes] < last)
    found = mapped_last[mapped_last >= 0]
    yield 0, Positions.of(np.sort(np.concatenate((found, last[stays_unmapped]))))
    yield 0, Distinct(len(found))
    if shown_max and len(found):
        by_offset = np.argsort(mapped_last, kind="stable")
        shown = by_offset[len(mapped_last) - len(found) :][:shown_max]
        held = codes_of.dictionary.take(to_arrow(shown)).to_pylist()
        yield 0, Shown(tuple(held), tuple(mapped_last[shown].tolist()))
    if firsts_max and len(found):
        yield 0, Firsts(_firsts(codes[is_mapped], first[is_mapped], count)[:firsts_max].tobytes())


def _firsts(codes: Integers, first: Integers, count: int) -> Integers:
    order = np.argsort(-first, kind="stable")
    firsts = np.full(count, -1, np.int64)
    firsts[codes[order]] = first[order]
    return np.sort(firsts[firsts >= 0])
