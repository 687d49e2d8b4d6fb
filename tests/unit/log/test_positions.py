"""Positions in and between raw ledgers, some of them empty, trimmed, or open."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ledgerfold.broker.log.positions import LogPositions
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.ledger import LedgerWriter
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LEDGER_STATE_OPEN, LedgerRecord


class Writer:
    """The part of a writer that positions need."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id, self.next_entry_id, self.pending_bytes = ledger_id, 0, 0


class Setting:
    """`entries`: durable ones of each ledger, the last of which is open."""

    def __init__(self, entries: dict[int, int]) -> None:
        self.entries = entries
        self.writers, self.state = Writers(), LogState("t")
        self.writers.open = writer(max(entries))
        self.ledgers = RawLedgers(entries, self._record)
        self.positions = LogPositions(self.ledgers, self.writers, self.state)
        self.state.last_durable = self.ledgers.last_recorded()

    def _record(self, ledger_id: int) -> LedgerRecord:
        is_open = ledger_id == max(self.entries)
        count = self.entries[ledger_id]
        last: Any = {"ledger_id": ledger_id, "entry_id": count - 1}
        return LedgerRecord(
            ledger_id=ledger_id,
            state=LEDGER_STATE_OPEN if is_open else LEDGER_STATE_CLOSED,
            segments=[LedgerRecord().segments.add(entries=count, last=last)] if count else [],
        )


def writer(ledger_id: int) -> LedgerWriter:
    return cast(LedgerWriter, Writer(ledger_id))


@pytest.mark.parametrize(
    ("position", "existing"),
    [
        (EARLIEST, (2, 0)),
        ((2, 1), (2, 1)),
        ((2, -1), (2, 0)),
        # Behind the end of a closed ledger, and in an empty one.
        ((2, 2), (7, 0)),
        ((5, 0), (7, 0)),
        # Between ledgers, and where one has been.
        ((3, 4), (5, 0)),
        # The open one may get any.
        ((7, 9), (7, 9)),
        (LATEST, LATEST),
    ],
)
def test_a_position_without_an_entry_means_the_next_entry(
    position: tuple[int, int], existing: tuple[int, int]
) -> None:
    positions = Setting({2: 2, 5: 0, 7: 1}).positions
    assert positions.existing(Position(*position)) == existing


def test_an_empty_log_is_published_up_to_its_beginning() -> None:
    """There is such a position, too; every log had had an entry."""
    positions = Setting({5: 0}).positions
    assert positions.last_published() == positions.last() == (5, -1)


def test_a_ledger_being_written_may_grow_though_another_follows() -> None:
    setting = Setting({2: 2, 5: 0})
    assert setting.positions.next(Position(2, 1)) == (5, 0)
    setting.writers.open = writer(2)
    setting.writers.follow(setting.writers.open, writer(5))
    assert setting.positions.next(Position(2, 1)) == (2, 2)


def test_the_end_of_an_empty_log_is_before_entries_in_flight() -> None:
    setting = Setting({2: 0, 5: 0})
    assert setting.positions.last() == (5, -1)
    setting.writers.follow(writer(2), writer(5))
    assert setting.positions.last() == (2, -1)
    setting.state.advance(Position(2, 0))
    assert setting.positions.last() == (2, 0)


def test_the_last_entry_is_known_after_its_deletion() -> None:
    setting = Setting({2: 2, 5: 0})
    setting.positions.forget([2])
    assert setting.positions.last() == (5, -1)
    assert setting.positions.last_published() == (2, 1)
    assert setting.positions.is_deleted(Position(2, 1))
    # A reader of all of it has missed nothing.
    assert not setting.positions.is_deleted(Position(2, 2))
    assert not setting.positions.is_deleted(Position(5, 0))
