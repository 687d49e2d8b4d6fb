"""Counts the backlog after many positions."""

from __future__ import annotations

import random
from typing import Any, cast

from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from tests.support.memory_log import MemoryLog, ledger_of


def counted(ledgers: dict[int, int], after: Position, upto: Position) -> int:
    """One by one."""
    return sum(
        after < Position(ledger_id, entry_id) <= upto
        for ledger_id, entries in ledgers.items()
        for entry_id in range(entries)
    )


def test_sums_agree_with_counting_one_by_one() -> None:
    """Positions in ledgers, between them, in trimmed ones, before and after all."""
    rng = random.Random(7)
    for _ in range(200):
        ids = sorted(rng.sample(range(12), rng.randint(0, 5)))
        ledgers = {ledger_id: rng.randint(0, 4) for ledger_id in ids}
        sums = LedgerSums(ledger_of(each, count, 10 * count) for each, count in ledgers.items())
        positions = [Position(rng.randint(-1, 13), rng.randint(-1, 6)) for _ in range(6)]
        for after in (*positions, EARLIEST):
            behind = counted(ledgers, after, LATEST)
            assert sums.estimated_bytes_after(after) == 10 * behind
            for upto in (*positions, LATEST):
                expected = counted(ledgers, after, upto)
                assert sums.entries_between(after, upto) == expected
                assert sums.entries_in([(after, upto)] * 2) == 2 * expected


class CountingLog(MemoryLog):
    """A log of a hundred ledgers that counts how often they are traversed."""

    passes = 0

    def entries_between(self, after: Position, upto: Position) -> int:
        self.passes += 1
        return 0

    def sums(self) -> LedgerSums:
        self.passes += 1
        return LedgerSums(ledger_of(each, 1_000, 1_000) for each in range(100))

    def last(self) -> Position:
        return Position(99, 999)


def test_computing_a_backlog_visits_each_ledger_once() -> None:
    """Ten thousand ranges, also if only a few entries are skipped."""
    log = CountingLog()
    cursor = Cursor(Position(0, -1))
    for n in range(10_000):
        cursor.acknowledge(Position(n // 100, n % 100 * 2 + 1))
    assert cursor.range_count == 10_000
    subscription = Subscription("t", "s", cast(Any, log), cursor, None)
    assert subscription.backlog_entries() == 90_000
    assert log.passes == 1
