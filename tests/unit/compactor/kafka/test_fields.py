"""Compares the table of records' first eight bytes with the numbers written there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.kafka.fields import read_fields
from ledgerfold.storage.kafka.varints import VARINTS

# Around where a number takes one more byte.
_NUMBERS = st.sampled_from(
    [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**20 - 1, 2**20, 2**31 - 1, -(2**31)]
)
RECORDS = st.lists(
    st.tuples(_NUMBERS.filter(lambda length: length >= 0), st.integers(0, 255), *[_NUMBERS] * 3),
    min_size=1,
)


@given(RECORDS)
def test_a_field_is_read_as_it_was_written(records: list[tuple[int, int, int, int, int]]) -> None:
    blob, starts, expected = bytearray(), list[int](), list[tuple[int, ...]]()
    for length, attributes, time, delta, key_bytes in records:
        starts.append(len(blob))
        blob += VARINTS[length] + bytes([attributes]) + VARINTS[time]
        blob += VARINTS[delta] + VARINTS[key_bytes]
        expected.append((len(blob), delta, key_bytes))
    fields = read_fields(np.frombuffer(bytes(blob), np.uint8), np.array(starts))
    assert list(zip(*(column.tolist() for column in fields), strict=True)) == expected
