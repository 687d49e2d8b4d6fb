"""The producer state of a replayed log, as far as cleaning needs it.

It has the last batch of each producer, whose header stays; the open transactions, before which
cleaning ends; and the transaction index so far. Nothing is validated, because the log's batches
were accepted.

    >>> known = KnownProducers((), expiration_ms=1000, began_ms=0)
    >>> known.add_data(Sent(7, 0, 0, 4, 50), is_transactional=True)
    >>> known.first_unstable_offset, known.at(60)
    (0, {7: (4, 0)})
    >>> known.end_transaction(Sent(7, 0, 5, 5, 60))
    >>> known.first_unstable_offset, known.at(600_000)
    (None, {})

Source: ProducerStateManager, ProducerStateEntry of Kafka 4.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.storage.kafka.transaction_index import AbortedTransaction

# The interval of a broker's checks for expired producers.
_CHECKED_MS = 600_000


class Sent(NamedTuple):
    """A producer's batch."""

    producer_id: int
    epoch: int
    base_offset: int
    last_offset: int
    time_ms: int


@dataclass(slots=True)
class _Known:
    epoch: int = -1
    # -1: only markers.
    last_data_offset: int = -1
    time_ms: int = -1
    # The first offset of the open transaction; -1: none.
    open_offset: int = -1

    def move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.last_data_offset = epoch, -1


class KnownProducers:
    """The producers of a replay. `lines`: the whole log's transaction index."""

    def __init__(
        self, lines: Iterable[AbortedTransaction], expiration_ms: int, began_ms: int
    ) -> None:
        self._coming = deque(sorted(lines, key=lambda line: line.last_offset))
        # Lines whose marker has been appended.
        self.lines: list[AbortedTransaction] = []
        self._producers: dict[int, _Known] = {}
        self._open: dict[int, int] = {}
        self._expiration_ms, self._checked_ms = expiration_ms, began_ms

    def add_data(self, batch: Sent, *, is_transactional: bool) -> None:
        known = self._producers.setdefault(batch.producer_id, _Known())
        known.move_to(batch.epoch)
        known.last_data_offset, known.time_ms = batch.last_offset, batch.time_ms
        if is_transactional and known.open_offset < 0:
            known.open_offset = batch.base_offset
            self._open[batch.base_offset] = batch.producer_id

    def end_transaction(self, batch: Sent) -> None:
        """Ends a transaction by a marker."""
        known = self._producers.setdefault(batch.producer_id, _Known())
        known.move_to(batch.epoch)
        known.time_ms = batch.time_ms
        self._open.pop(known.open_offset, None)
        known.open_offset = -1
        while self._coming and self._coming[0].last_offset <= batch.last_offset:
            self.lines.append(self._coming.popleft())

    def see(self, producer_id: int) -> None:
        """Adds a producer by the header that a cleaning left of a marker."""
        self._producers.setdefault(producer_id, _Known())

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self._open, default=None)

    @property
    def next_check_ms(self) -> int:
        return self._checked_ms + _CHECKED_MS

    def check(self, now_ms: int) -> None:
        """Forgets expired producers, as often as a broker does."""
        if now_ms - self._checked_ms < _CHECKED_MS:
            return
        self._checked_ms = now_ms - (now_ms - self._checked_ms) % _CHECKED_MS
        oldest_ms = self._checked_ms - self._expiration_ms
        for producer_id, known in list(self._producers.items()):
            if known.open_offset < 0 and known.time_ms <= oldest_ms:
                del self._producers[producer_id]

    def at(self, now_ms: int) -> dict[int, tuple[int, int]]:
        """Returns the last data offset, or -1, and the epoch of each producer."""
        self.check(now_ms)
        return {
            producer_id: (known.last_data_offset, known.epoch)
            for producer_id, known in self._producers.items()
        }
