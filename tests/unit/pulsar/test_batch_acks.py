"""Partly acknowledged entries are bounded in memory, and in the cost of each acknowledgement."""

from __future__ import annotations

from ledgerfold.broker.pulsar.batch_acks import REMEMBERED_BYTES_MAX, BatchAcks
from ledgerfold.storage.entry import Position


class _CountingPosition(Position):
    """Counts how many positions are compared with it."""

    compared = 0

    def __ge__(self, other: tuple[int, ...]) -> bool:
        type(self).compared += 1
        return super().__ge__(other)


def test_beyond_the_limit_an_acknowledgement_does_not_look_at_all_entries() -> None:
    """No test had more entries than the limit: each further one was compared with all of them, so
    that the slices of one command held up the broker for a tenth of a second each.
    """
    acks, before = BatchAcks(), _CountingPosition(1, -1)
    count = REMEMBERED_BYTES_MAX // 200 + 500
    for entry_id in range(count):
        acks.acknowledge(Position(1, entry_id), 0b10, before)
    assert before.compared < 20 * count
    remembered = [each for each in range(count) if acks.remaining(Position(1, each)) is not None]
    # Only the oldest are forgotten.
    assert remembered == list(range(remembered[0], count))
    assert REMEMBERED_BYTES_MAX * 3 // 4 < 200 * len(remembered) <= REMEMBERED_BYTES_MAX
