"""Compares keys distinguished by their hashes with Python's dictionary."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.job.words import HASHED_BYTES, WORD_BYTES, Hashed, Words
from ledgerfold.compactor.positions import ascending

# Few of them, alike: ends of zeros, one a part of the other, the same but for one byte far behind.
_LIKELY = [b"", b"\0", b"\0" * 8, b"k", b"k\0", b"key-0001", b"key-00012", b"x" * 63 + b"y"]
_LONG = [b"x" * HASHED_BYTES + tail for tail in (b"a", b"b", b"a" + b"z" * 9, b"b" + b"z" * 9)]
SHORT_KEYS = st.lists(st.sampled_from(_LIKELY) | st.binary(max_size=20), min_size=1)
KEYS = st.lists(st.sampled_from(_LIKELY + _LONG) | st.binary(max_size=90), min_size=1)


def check(keys: list[bytes], held: HashedKeys) -> None:
    rows = defaultdict[bytes, list[int]](list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    groups = held.grouped()
    assert groups.last_of.tolist() == [rows[key][-1] for key in keys]
    of_keys = sorted(rows.values(), key=lambda each: each[-1])
    assert groups.last.tolist() == [each[-1] for each in of_keys]
    assert groups.first.tolist() == [each[0] for each in of_keys]
    numbered = held.numbered()
    assert numbered.keys.to_pylist() == [keys[each[0]] for each in of_keys]
    assert [numbered.keys[code].as_py() for code in numbered.codes.tolist()] == keys
    assert numbered.hashes.tolist() == held.hashes[groups.last].tolist()


@given(KEYS)
def test_rows_are_grouped_by_key(keys: list[bytes]) -> None:
    check(keys, HashedKeys.of(pa.array([b"before", *keys], pa.binary()).slice(1)))


@given(SHORT_KEYS, st.integers(1, 3))
def test_keys_with_equal_hashes_are_distinguished(keys: list[bytes], hashes: int) -> None:
    held = HashedKeys.of(pa.array(keys, pa.binary()))
    # The upper bits, which select a place in the table.
    held.hashes[:] = (np.arange(len(keys)) % hashes).astype(np.uint64) << np.uint64(60)
    same = {keys.index(key) for key in keys}
    for row, key in enumerate(keys):
        held.hashes[row] = held.hashes[keys.index(key)]
    assert len(same) == len(set(keys))
    check(keys, held)


@given(KEYS, KEYS)
def test_a_hash_depends_only_on_its_key(keys: list[bytes], others: list[bytes]) -> None:
    alone = [int(HashedKeys.of(pa.array([key], pa.binary())).hashes[0]) for key in keys]
    together = HashedKeys.of(pa.array([*others, *keys], pa.binary())).hashes
    assert together[len(others) :].tolist() == alone


@given(KEYS)
def test_a_column_of_a_subset_of_rows(keys: list[bytes]) -> None:
    held = HashedKeys.of(pa.array(keys, pa.binary()))
    assert held.column().to_pylist() == keys
    rows = np.arange(0, len(keys), 2)
    assert held.column(rows).to_pylist() == keys[::2]


def test_long_keys_that_differ_in_the_middle_have_different_hashes() -> None:
    """Otherwise all of them would be in one bucket, whose size has no bound then."""
    for before, after in ((HASHED_BYTES, WORD_BYTES), (70, 70), (300, 9), (9000, 0)):
        keys = [b"x" * before + b"%05d" % number + b"y" * after for number in range(1000)]
        hashes = HashedKeys.of(pa.array(keys, pa.binary())).hashes
        assert len(set(hashes.tolist())) == len(keys)


def test_damaged_sizes_are_hashed_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claims the rest of the buffer: hashing all of it for each of them would take minutes.
    Kafka's records are hashed before their sizes are checked.
    """
    sizes = set[int]()

    def checksum(part: memoryview) -> int:
        sizes.add(len(part))
        return 0

    monkeypatch.setattr("ledgerfold.compactor.job.words.crc32", checksum)
    count = 2_000
    words, hashed = Words(np.frombuffer(bytes(12 * count), np.uint8)), Hashed(count)
    hashed.fill(words, slice(0, count), np.arange(count) * 12, np.full(count, 1 << 31))
    assert max(sizes) == 4096


@pytest.mark.parametrize(
    ("messages", "keys", "are_distinct"),
    [(50_000, 50_000, True), (50_000, 48_000, True), (50_000, 40_000, False), (50_000, 1, False)],
)
def test_whether_keys_are_mostly_distinct(messages: int, keys: int, are_distinct: bool) -> None:
    """A sample of the keys decides, not of the messages: the first ones hardly repeat."""
    column = pa.array([b"%d" % (number % keys) for number in range(messages)], pa.binary())
    assert HashedKeys.of(column).are_mostly_distinct == are_distinct


def test_keys_with_a_frequent_one_are_not_mostly_distinct() -> None:
    """It is not in the sample of keys: its rows would all be in one bucket, unfolded."""
    for frequent in range(20):
        keys = [b"%d" % number for number in range(20_000)] + [b"hot %d" % frequent] * 200
        assert not HashedKeys.of(pa.array(keys, pa.binary())).are_mostly_distinct


@pytest.mark.parametrize("rows", [[], [0], [7, 0, 3], [900_000, 2], list(range(99, -1, -1))])
def test_rows_in_ascending_order(rows: list[int]) -> None:
    """Few of many rows are sorted, many are marked in a table."""
    assert ascending(np.array(rows, np.int64)).tolist() == sorted(rows)


def test_blocks_are_concatenated() -> None:
    keys = [b"%d" % (number % 7_000) for number in range(20_000)]
    check(keys, HashedKeys.of(pa.array(keys, pa.binary())))


@given(st.lists(st.lists(st.sampled_from(_LIKELY), min_size=1), min_size=1))
def test_joined_hashes_are_those_of_the_joined_keys(several: list[list[bytes]]) -> None:
    """With a different number of parts in each."""
    columns = [pa.array(keys, pa.binary()) for keys in several]
    column = pa.concat_arrays(columns)
    hashed = [HashedKeys.of(each).where(np.arange(len(each)))[1] for each in columns]
    held = HashedKeys.of(column, Hashed.joined(hashed))
    assert held.hashes.tolist() == HashedKeys.of(column).hashes.tolist()
    check(column.to_pylist(), held)


def test_hashes_of_a_subset_of_rows() -> None:
    held = Hashed(3)
    held.fill(Words(np.frombuffer(b"abcdef", np.uint8)), slice(0, 3), *np.array([[0, 1, 3]] * 2))
    some = held.where(np.array([0, 2]))
    assert some.hashes.tolist() == held.hashes[[0, 2]].tolist()
    assert [part.tolist() for part in some.parts] == [part[[0, 2]].tolist() for part in held.parts]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 24, 40])
def test_words_are_read_at_any_offset(size: int) -> None:
    data = bytes(range(1, size + 1))
    places = np.array([*range(size + 20), 1 << 40])
    words = Words(np.frombuffer(data, np.uint8)).at(places)
    expected = [data[at : at + WORD_BYTES].ljust(WORD_BYTES, b"\0") for at in places.tolist()]
    assert [int(word).to_bytes(WORD_BYTES, "little") for word in words] == expected
