"""The cursor: mark-delete, ranges, gaps, the record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.subscriptions import cursor as cursor_module
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.storage.entry import EARLIEST, Position


def at(text: str) -> Position:
    """ "3:7" -> Position(3, 7)."""
    ledger_id, _, entry_id = text.partition(":")
    return Position(int(ledger_id), int(entry_id))


def shape(cursor: Cursor) -> str:
    """Mark-delete and ranges: "1:4 (1:6..1:8]"."""
    return " ".join([str(cursor.mark_delete), *map(str, cursor.ranges)])


# Steps: "3" acknowledges entry 1:3; "<3" cumulatively; "2:0" another ledger's.
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", "1:-1"),
        ("0", "1:0"),
        ("0 1 2", "1:2"),
        ("2 1 0", "1:2"),
        ("1", "1:-1 (1:0..1:1]"),
        ("1 3", "1:-1 (1:0..1:1] (1:2..1:3]"),
        ("1 3 2", "1:-1 (1:0..1:3]"),
        ("3 4 1 0", "1:1 (1:2..1:4]"),
        ("3 3 3", "1:-1 (1:2..1:3]"),
        ("<2", "1:2"),
        ("3 <2", "1:3"),
        ("5 3 <1", "1:1 (1:2..1:3] (1:4..1:5]"),
        ("<5 <2 1", "1:5"),
        ("2:0 0", "1:0 (2:-1..2:0]"),
        ("5 2:0 2:2 <2:1", "2:2"),
    ],
)
def test_mark_delete_advances_over_contiguous_entries(steps: str, expected: str) -> None:
    """Acknowledgements in any order leave the lowest possible number of ranges."""
    cursor = Cursor(at("1:-1"))
    for step in steps.split():
        name = step.lstrip("<")
        position = at(name if ":" in name else f"1:{name}")
        if step.startswith("<"):
            cursor.acknowledge_cumulative(position)
        else:
            cursor.acknowledge(position)
    assert shape(cursor) == expected


@pytest.mark.parametrize(
    ("gaps", "acks", "expected"),
    [
        # A ledger's end: 1:1 is the last entry of its ledger.
        ("1:1>2:0", "1:0 1:1 2:0", "2:0"),
        ("1:1>2:0", "2:0 1:1 1:0", "2:0"),
        ("1:1>2:0", "2:0", "1:-1 (1:1..2:0]"),
        # Entries that compaction removed, in one ledger and over several.
        ("1:-1>1:4 1:4>1:9", "1:4 1:9", "1:9"),
        ("1:-1>1:4 1:4>7:2", "7:2", "1:-1 (1:4..7:2]"),
        ("1:-1>1:4 1:4>7:2", "7:2 1:4", "7:2"),
        # The unacknowledged entry 1:4 holds the mark-delete, not the gap before it.
        ("1:-1>1:4 1:4>1:9", "1:9", "1:-1 (1:4..1:9]"),
    ],
)
def test_a_gap_is_acknowledged_with_the_entry_after_it(gaps: str, acks: str, expected: str) -> None:
    """Positions that reading passed over count as the following entry does."""
    cursor = Cursor(at("1:-1"))
    for gap in gaps.split():
        after, before = gap.split(">")
        cursor.note_gap(at(after), at(before))
    for ack in acks.split():
        cursor.acknowledge(at(ack))
    assert shape(cursor) == expected


def test_an_entry_acknowledged_before_its_gap_was_known_closes_it_later() -> None:
    """After a restart only the entry is remembered; reading across the gap restores the rest."""
    cursor = Cursor(at("1:1"))
    cursor.acknowledge(at("3:2"))
    cursor.note_gap(at("1:1"), at("3:2"))
    assert cursor.acknowledge(at("3:2"))
    assert shape(cursor) == "3:2"


@pytest.mark.parametrize("early", [True, False])
def test_the_gap_at_the_end_counts_when_everything_before_it_is_acknowledged(early: bool) -> None:
    """Tombstones at the end of the compacted data do not stay in the backlog (Pulsar #23245)."""
    cursor = Cursor(at("1:-1"))
    if early:
        cursor.pass_over(at("1:2"), at("1:8"))
    cursor.acknowledge_cumulative(at("1:1"))
    assert shape(cursor) == "1:1"
    cursor.acknowledge(at("1:2"))
    if not early:
        cursor.pass_over(at("1:2"), at("1:8"))
    assert shape(cursor) == "1:8"


def test_a_reading_forgets_the_gaps_of_the_one_before() -> None:
    """The next consumer may get entries that the last one's view did not contain."""
    cursor = Cursor(at("1:-1"))
    cursor.note_gap(at("1:-1"), at("1:4"))
    cursor.pass_over(at("1:4"), at("1:8"))
    cursor.begin_reading()
    cursor.acknowledge(at("1:4"))
    assert shape(cursor) == "1:-1 (1:3..1:4]"
    cursor.acknowledge_cumulative(at("1:4"))
    assert shape(cursor) == "1:4"


def test_a_cumulative_acknowledgement_before_the_first_entry_of_a_ledger() -> None:
    """It acknowledges the entry read before, and never leaves entry id -1 in the mark-delete."""
    cursor = Cursor(at("1:-1"))
    cursor.note_gap(at("1:6"), at("2:0"))
    assert cursor.acknowledge_cumulative(at("2:-1"))
    assert shape(cursor) == "1:6"
    assert not cursor.acknowledge_cumulative(at("5:-1"))
    assert shape(cursor) == "1:6"


def test_reset_moves_in_both_directions_and_clears_later_acknowledgements() -> None:
    """A seek clears the acknowledgements beyond its target."""
    cursor = Cursor(at("1:5"))
    cursor.acknowledge(at("1:8"))
    cursor.reset(EARLIEST)
    assert shape(cursor) == "-1:-1"
    cursor.reset(at("9:9"))
    assert shape(cursor) == "9:9"


def test_only_new_acknowledgements_are_changes() -> None:
    """Each change is counted until it is written; acknowledging twice had not been asked for."""
    cursor = Cursor(at("1:2"))
    for text in ("1:3", "1:6"):
        assert cursor.acknowledge(at(text))
        assert not cursor.acknowledge(at(text))


def test_the_cursor_is_restored_from_its_record() -> None:
    """Mark-delete and ranges survive, those that go from one ledger to another, too."""
    cursor = Cursor(at("1:2"), incarnation=5)
    cursor.acknowledge(at("1:4"))
    cursor.note_gap(at("1:7"), at("4:3"))
    cursor.acknowledge(at("4:3"))
    record = cursor.to_record("t", "s", created_ms=7)
    assert (record.topic, record.subscription, record.created_ms) == ("t", "s", 7)
    again = Cursor.from_record(record)
    assert again.incarnation == 5
    assert shape(again) == shape(cursor) == "1:2 (1:3..1:4] (1:7..4:3]"


def test_acknowledgements_around_the_end_of_a_ledger_are_recorded() -> None:
    """One by one, with a gap noted between: they become one range."""
    cursor = Cursor(EARLIEST)
    cursor.note_gap(at("1:3"), at("2:0"))
    cursor.acknowledge(at("1:3"))
    cursor.acknowledge(at("2:0"))
    again = Cursor.from_record(cursor.to_record("t", "s"))
    assert again.is_acknowledged(at("1:3"))
    assert again.is_acknowledged(at("2:0"))
    assert not again.is_acknowledged(at("1:2"))


def test_the_cursor_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its bounds the cursor forgets acknowledgements; it never invents one."""
    monkeypatch.setattr(cursor_module, "RANGES_PERSISTED_MAX", 2)
    cursor = Cursor(at("1:-1"), ranges_max=3, gaps_max=2)
    for entry_id in (1, 3, 5, 7):
        cursor.acknowledge(Position(1, entry_id))
    assert shape(cursor) == "1:-1 (1:0..1:1] (1:2..1:3] (1:4..1:5]"
    cursor.acknowledge(at("1:6"))
    assert cursor.range_count == 3
    assert len(cursor.to_record("t", "s").acknowledged) == 2
    for ledger_id in (2, 3, 4):
        cursor.note_gap(Position(ledger_id - 1, 9), Position(ledger_id, 0))
    cursor.acknowledge_cumulative(at("1:9"))
    cursor.acknowledge(at("2:0"))
    assert shape(cursor) == "1:9 (2:-1..2:0]"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 15)), max_size=40))
def test_the_cursor_agrees_with_a_set(steps: list[tuple[bool, int]]) -> None:
    """Exactly the acknowledged entries count as acknowledged, also after a restart."""
    cursor, model = Cursor(Position(1, -1)), set[int]()
    for cumulative, entry_id in steps:
        if cumulative:
            cursor.acknowledge_cumulative(Position(1, entry_id))
            model |= set(range(entry_id + 1))
        else:
            cursor.acknowledge(Position(1, entry_id))
            model.add(entry_id)
        for each in (cursor, Cursor.from_record(cursor.to_record("t", "s"))):
            known = {n for n in range(17) if each.is_acknowledged(Position(1, n))}
            assert known == model
        assert cursor.mark_delete.next.entry_id not in model
