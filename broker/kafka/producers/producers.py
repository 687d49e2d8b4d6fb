"""The producers of a partition and their transactions.

`prepare` checks an append and changes nothing; `commit` applies it once it is in the log. A
duplicate is answered with the original's offsets:

    >>> producers = Producers("t-0", expiration_ms=86_400_000)
    >>> first = BatchHeader(0, 49, 0, 2, 0, 0, 1, 5, 5, 7, 0, 0, 2)
    >>> producers.commit(producers.prepare(first, None, Origin.CLIENT), append_time_ms=9)
    ()
    >>> again = first._replace(base_offset=2)
    >>> producers.prepare(again, None, Origin.CLIENT).duplicate.last_offset
    1

The *last stable offset* is the first offset of the oldest transaction that is open or whose marker
the high watermark has not passed; else the high watermark. Each aborted transaction is an entry of
the transaction index, in the segment of its marker.

Bounds: five batches are kept for each producer. It is *forgotten* `producer.id.expiration.ms` after
its last record's time, unless it has an open transaction: the cleaner then keeps nothing for it.
That time is set by the sender. The entry therefore stays, and detects duplicates, until its last
append is that old, too, except under Kafka's rule (`by_record_time`).

Source: ProducerStateManager, UnifiedLog.analyzeAndValidateProducerState of Kafka 4.1. There is no
transaction coordinator, so a transaction is not verified with one (KIP-890).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.broker.kafka.producers.producer import (
    BATCHES_REMEMBERED,
    EndedTransaction,
    Origin,
    ProducerAppend,
    ProducerEntry,
    Sent,
)
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.records import EndMarker
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1.records_pb2 import KafkaProducer

_log = logging.getLogger(__name__)


class LastEntry(NamedTuple):
    """A producer's last batch, which cleaning must keep. -1: only markers are known."""

    last_data_offset: int
    epoch: int


@dataclass(slots=True)
class PreparedAppend:
    """The effect of a batch once it is in the log. `duplicate`: the original, if it is there
    already.

    `next_batch`: the entry whose next batch it is, if that is the only change.
    """

    next_offset: int
    duplicate: Sent | None = None
    next_batch: tuple[ProducerEntry, Sent] | None = None
    append: ProducerAppend | None = None
    ended: EndedTransaction | None = None


class Producers:
    """The producers of one partition. `end_offset`: the log's end as known here."""

    def __init__(
        self, partition: str, expiration_ms: int, by_record_time: Callable[[], bool] = lambda: False
    ) -> None:
        self.partition, self.expiration_ms = partition, expiration_ms
        self._by_record_time = by_record_time
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        # Producers of open transactions by first offset, ascending, and marker offsets of ended
        # ones.
        self._open: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        # The first remaining batch of a transaction whose own first batch is missing.
        self._begins: dict[int, int] = {}

    def prepare(
        self, header: BatchHeader, marker: EndMarker | None, origin: Origin
    ) -> PreparedAppend:
        """Checks a batch with its assigned offsets. Raises KafkaError."""
        prepared = PreparedAppend(header.next_offset)
        if not header.has_producer:
            return prepared
        known = self.entries.get(header.producer_id)
        if origin is Origin.CLIENT and known is not None:
            if known.comes_next(header):
                # The common case: nothing more to check.
                prepared.next_batch = known, Sent.of(header)
                return prepared
            prepared.duplicate = known.duplicate_of(
                header.producer_epoch, header.base_sequence, header.last_sequence
            )
            if prepared.duplicate:
                return prepared
        known = known or ProducerEntry(header.producer_id)
        prepared.append = append = ProducerAppend(known, origin, self.partition)
        if header.is_control:
            prepared.ended = append.append_marker(header, marker)
        else:
            append.append_data(header)
        return prepared

    def commit(
        self, prepared: PreparedAppend, append_time_ms: int
    ) -> tuple[AbortedTransaction, ...]:
        """Applies an append. Returns the entries for its segment's transaction index."""
        assert prepared.duplicate is None
        self.end_offset = prepared.next_offset
        if prepared.next_batch is not None:
            known, sent = prepared.next_batch
            known.add_batch(known.epoch, sent)
            known.last_append_time_ms, known.is_forgotten = append_time_ms, False
        append = prepared.append
        if append is None:
            return ()
        producer_id = append.entry.producer_id
        append.entry.last_append_time_ms = append_time_ms
        if producer_id in self.entries:
            self.entries[producer_id].take_over(append.entry)
        else:
            self.entries[producer_id] = append.entry
        if append.began is not None:
            self._open[append.began] = producer_id
        return () if prepared.ended is None else self._end([prepared.ended])

    def _end(self, transactions: Iterable[EndedTransaction]) -> tuple[AbortedTransaction, ...]:
        aborted = []
        for ended in transactions:
            if ended.is_aborted:
                aborted.append(self._index_entry(ended))
            del self._open[ended.first_offset]
            self._ended[ended.first_offset] = ended.last_offset
        return tuple(aborted)

    def replay(
        self, header: BatchHeader, marker: EndMarker | None, append_time_ms: int
    ) -> tuple[AbortedTransaction, ...]:
        """Applies a batch of the log at a load.

        Data outside transactions implies that the producer's last transaction had ended.
        """
        lost: tuple[AbortedTransaction, ...] = ()
        known = self.entries.get(header.producer_id)
        if known is not None and not header.is_control and not header.is_transactional:
            lost = self._end_without_marker([known], header.base_offset)
        prepared = self.prepare(header, marker, Origin.REPLICATION)
        return (*lost, *self.commit(prepared, append_time_ms))

    def abort_open_transactions(self, offset: int) -> tuple[AbortedTransaction, ...]:
        """Aborts all open transactions at a load: a repair gave up entries before `offset`.

        NOTE: their markers may be among those entries. They count as aborted: batches after the
        loss belong to another transaction.
        """
        return self._end_without_marker(self.entries.values(), offset)

    def _end_without_marker(
        self, entries: Iterable[ProducerEntry], offset: int
    ) -> tuple[AbortedTransaction, ...]:
        ended = list[EndedTransaction]()
        for each in entries:
            first = each.transaction_first_offset
            if first is not None:
                ended.append(EndedTransaction(each.producer_id, first, offset - 1, is_aborted=True))
                each.transaction_first_offset = None
                _log.warning(
                    "%s: the marker of producer %d's transaction from offset %d may be lost; it "
                    "counts as aborted, up to %d",
                    self.partition,
                    each.producer_id,
                    first,
                    offset - 1,
                )
        self.end_offset = offset
        return self._end(ended)

    def keep_last_batches(self) -> None:
        """Keeps only each producer's last batch after a load, as Kafka's snapshots do."""
        for each in self.entries.values():
            while len(each.sent) > 1:
                each.sent.popleft()

    @property
    def is_empty(self) -> bool:
        """True if no producer is known, and no transaction has ended above the high watermark."""
        return not self.entries and not self._ended

    @property
    def open_offsets(self) -> list[int]:
        """The first offsets of open transactions."""
        return list(self._open)

    def begins_at(self, first: int, offset: int) -> None:
        """Records that no batch remains between an open transaction's first offset and `offset`."""
        self._begins[first] = offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open, or decided above the high
        watermark.
        """
        return min((*self._open, *self._ended), default=None)

    def last_stable_offset(
        self, high_watermark: int, log_start: int = 0, start_batch: int | None = None
    ) -> int:
        """Returns the end of what readers of committed records, and cleanings, may read.

        `start_batch`: if the log starts after an open transaction's first offset, the first offset
        of the batch at or after the log start; None if there is none yet.
        """
        unstable = self.first_unstable_offset
        if unstable is not None:
            is_gone = unstable < log_start
            unstable = start_batch if is_gone else self._begins.get(unstable, unstable)
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def pass_high_watermark(self, offset: int) -> None:
        """Drops ended transactions whose marker is below the high watermark."""
        for first in [first for first, last in self._ended.items() if last < offset]:
            del self._ended[first]
            self._begins.pop(first, None)

    def start_at(self, log_start: int) -> None:
        """Advances the log start. Producers stay known, as in Kafka."""
        self.pass_high_watermark(log_start)
        self.end_offset = max(self.end_offset, log_start)

    def expire(self, now_ms: int) -> list[int]:
        """Forgets idle producers. Returns the ids of the removed entries."""
        is_gone = self._expiry_check(now_ms)
        gone = [each.producer_id for each in self.entries.values() if is_gone(each)]
        for producer_id in gone:
            del self.entries[producer_id]
        return gone

    def last_entries(self) -> dict[int, LastEntry]:
        """Returns the last batch of each producer, which cleaning keeps, if only as a header."""
        return {
            each.producer_id: LastEntry(each.last_data_offset, each.epoch)
            for each in self.entries.values()
            if not each.is_forgotten
        }

    def snapshot(self) -> Iterator[KafkaProducer]:
        """Yields the producers with their last batch only, as in Kafka's snapshots."""
        yield from map(self.last_of, self.entries)

    def last_of(self, producer_id: int) -> KafkaProducer:
        """Returns a producer with its last batch only."""
        each = self.entries[producer_id]
        last = each.sent[-1] if each.sent else None
        first = each.transaction_first_offset
        return KafkaProducer(
            producer_id=each.producer_id,
            epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_data_offset=each.last_data_offset,
            offset_delta=last.offset_delta if last else 0,
            last_timestamp_ms=each.last_timestamp_ms,
            coordinator_epoch=each.coordinator_epoch,
            transaction_first_offset=-1 if first is None else first,
            last_append_time_ms=each.last_append_time_ms,
        )

    def load(self, snapshot: Iterable[KafkaProducer], end_offset: int, now_ms: int) -> None:
        """Replaces all state by a snapshot taken at `end_offset`; later batches are replayed.

        A truncated log is loaded likewise: empty, from a snapshot at or below its end, or without
        one from the log start.
        """
        self.entries.clear()
        self._open.clear()
        self._ended.clear()
        self._begins.clear()
        self.end_offset = end_offset
        is_gone = self._expiry_check(now_ms)
        for each in snapshot:
            entry = _entry_of(each)
            if is_gone(entry):
                continue
            self.entries[each.producer_id] = entry
            if entry.transaction_first_offset is not None:
                self._open[entry.transaction_first_offset] = each.producer_id

    def _expiry_check(self, now_ms: int) -> Callable[[ProducerEntry], bool]:
        """Returns a check for entries to remove. It marks those that are only forgotten."""
        oldest_ms, by_record_time = now_ms - self.expiration_ms, self._by_record_time()

        def is_gone(entry: ProducerEntry) -> bool:
            if entry.transaction_first_offset is None and entry.last_timestamp_ms <= oldest_ms:
                entry.is_forgotten = True
            is_old = by_record_time or entry.last_append_time_ms <= oldest_ms
            return entry.is_forgotten and is_old

        return is_gone

    def _index_entry(self, ended: EndedTransaction) -> AbortedTransaction:
        """Returns the index entry; its stable offset is that of another producer's next open
        transaction, if there is one.
        """
        others = (first for first, who in self._open.items() if who != ended.producer_id)
        stable = min(others, default=ended.last_offset + 1)
        return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)


def _entry_of(snapshot: KafkaProducer) -> ProducerEntry:
    sent: deque[Sent] = deque(maxlen=BATCHES_REMEMBERED)
    if snapshot.last_data_offset >= 0:
        sent.append(
            Sent(
                snapshot.last_sequence,
                snapshot.last_data_offset,
                snapshot.offset_delta,
                snapshot.last_timestamp_ms,
            )
        )
    first = snapshot.transaction_first_offset
    return ProducerEntry(
        snapshot.producer_id,
        snapshot.epoch,
        snapshot.coordinator_epoch,
        snapshot.last_timestamp_ms,
        first if first >= 0 else None,
        sent,
        snapshot.last_append_time_ms,
    )
