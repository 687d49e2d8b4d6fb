"""Many small entries read at once: the same as one by one, up to the first that is not as it
should be.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.storage.entry import EntryFields, Position, build_entry, stamp
from ledgerfold.storage.entry_check import read_entry
from ledgerfold.storage.stored_entries import read_run

FIRST = Position(7, 3)
END = Position(9, 0)
entry_sizes = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=12)


def stored(sizes: list[tuple[int, int]], positions: list[Position] | None = None) -> list[bytes]:
    positions = positions or [Position(7, 3 + row) for row in range(len(sizes))]
    return [
        stamp(build_entry(b"k" * keys, b"v" * values, EntryFields(1)), *position, 1, 1)
        for (keys, values), position in zip(sizes, positions, strict=True)
    ]


@given(entry_sizes, st.data())
def test_the_entries_before_a_damaged_byte_are_returned(
    sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    entries = stored(sizes)
    block = bytearray(b"".join(entries))
    damaged_at = data.draw(st.integers(0, len(block)))
    if damaged_at < len(block):
        block[damaged_at] ^= 1 << data.draw(st.integers(0, 7))
    whole = 0
    while whole < len(entries) and sum(map(len, entries[: whole + 1])) <= damaged_at:
        whole += 1
    run, size_bytes = read_run(memoryview(block), FIRST, END, is_dense=True)
    assert [each.data for each in run] == entries[:whole]
    assert [tuple(each) for each in run] == [read_entry(entry, 0) for entry in entries[:whole]]
    assert size_bytes == sum(map(len, entries[:whole]))


@given(entry_sizes, st.data())
def test_a_block_may_end_within_an_entry(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    entries = stored(sizes)
    block = b"".join(entries)
    cut_at = data.draw(st.integers(0, len(block)))
    whole = 0
    while whole < len(entries) and sum(map(len, entries[: whole + 1])) <= cut_at:
        whole += 1
    run, _ = read_run(block[:cut_at], FIRST, END, is_dense=True)
    assert [each.data for each in run] == entries[:whole]


@given(
    st.lists(st.builds(Position, st.integers(7, 10), st.integers(0, 6)), min_size=1, max_size=12),
    st.booleans(),
)
def test_positions_increase_up_to_the_end(positions: list[Position], is_dense: bool) -> None:
    entries = stored([(1, 1)] * len(positions), positions)
    expected, whole = FIRST, 0
    for position in positions:
        in_order = position == expected if is_dense else position >= expected
        if not in_order or position > END:
            break
        expected, whole = position.next, whole + 1
    run, _ = read_run(b"".join(entries), FIRST, END, is_dense=is_dense)
    assert [each.header.position for each in run] == positions[:whole]


def test_a_block_that_begins_with_a_large_entry_is_skipped() -> None:
    entries = stored([(10, 5000), (1, 1)])
    assert read_run(b"".join(entries), FIRST, END, is_dense=True) == ([], 0)
    assert read_run(b"", FIRST, END, is_dense=True) == ([], 0)
