"""What the broker remembers of all producers of a partition, and of their transactions.

An append is asked about first (`prepare`), which changes nothing; what was appended is then made
known (`commit`). A batch that was sent before is answered with the first's offsets:

    >>> producers = Producers("t-0", expiration_ms=86_400_000)
    >>> first = BatchHeader(0, 49, 0, 2, 0, 0, 1, 5, 5, 7, 0, 0, 2)
    >>> producers.commit(producers.prepare(first, None, Origin.CLIENT), append_time_ms=9)
    ()
    >>> again = first._replace(base_offset=2)
    >>> producers.prepare(again, None, Origin.CLIENT).duplicate.last_offset
    1

The *last stable offset* is the first offset of the oldest transaction that is open or whose marker
the high watermark has not passed; else the high watermark. Each aborted transaction gives an entry
of the transaction index, which the segment of its marker keeps.

Bounds: a producer takes five batches' figures, and is *forgotten* `producer.id.expiration.ms` after
its last record's time, unless a transaction of it is open: the cleaner keeps nothing for its sake.
That time is the sender's word. So its entry stays until its last append is as old, too, and a batch
that is sent again is known by it, except where Kafka's rule is wanted (`by_record_time`).

Source: ProducerStateManager, UnifiedLog.analyzeAndValidateProducerState of Kafka 4.1. Whether a
transaction's coordinator knows of it (KIP-890) is not asked: there is none here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.broker.kafka.producer import (
    BATCHES_REMEMBERED,
    EndedTransaction,
    Marker,
    Origin,
    ProducerAppend,
    ProducerEntry,
    Sent,
)
from ledgerfold.storage.kafka.batch import BatchHeader

_log = logging.getLogger(__name__)


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index. `last_offset`: the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LastEntry(NamedTuple):
    """What cleaning must not take away of a producer. -1: only markers are known."""

    last_data_offset: int
    epoch: int


class ProducerSnapshot(NamedTuple):
    """An entry as it is kept on the disk: of the last batch alone, as in Kafka's snapshots."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_data_offset: int
    offset_delta: int
    last_timestamp_ms: int
    coordinator_epoch: int
    # -1: none is open.
    transaction_first_offset: int
    last_append_time_ms: int


@dataclass(slots=True)
class PreparedAppend:
    """What would be known once a batch is in the log. `duplicate`: it is there already.

    `next_of`: whose next batch it is, with no more to be known of it than `sent`.
    """

    next_offset: int
    duplicate: Sent | None = None
    next_of: ProducerEntry | None = None
    sent: Sent | None = None
    append: ProducerAppend | None = None
    ended: EndedTransaction | None = None


class Producers:
    """Of one partition. `end_offset`: up to where the log is known."""

    def __init__(
        self, partition: str, expiration_ms: int, by_record_time: Callable[[], bool] = lambda: False
    ) -> None:
        self.partition, self.expiration_ms = partition, expiration_ms
        self._by_record_time = by_record_time
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        # First offsets, rising as appends do: of whom each is, and where its marker is.
        self._open: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        # And where the first batch is that there is of it, if it is not there.
        self._begins: dict[int, int] = {}

    def prepare(self, header: BatchHeader, marker: Marker | None, origin: Origin) -> PreparedAppend:
        """A batch with the offsets that it would have. Raises KafkaError."""
        prepared = PreparedAppend(header.next_offset)
        if not header.has_producer:
            return prepared
        known = self.entries.get(header.producer_id)
        if origin is Origin.CLIENT and known is not None:
            if known.comes_next(header):
                # As with most batches: there is nothing more to check.
                prepared.next_of, prepared.sent = known, Sent.of(header)
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
        """It is in the log now. What its segment's transaction index gets."""
        assert prepared.duplicate is None
        self.end_offset = prepared.next_offset
        known = prepared.next_of
        if known is not None and prepared.sent is not None:
            known.add_batch(known.epoch, prepared.sent)
            known.last_append_time_ms, known.is_forgotten = append_time_ms, False
        append = prepared.append
        if append is None:
            return ()
        producer_id = append.entry.producer_id
        append.entry.last_append_time_ms = append_time_ms
        known = self.entries.get(producer_id)
        if known:
            known.take_over(append.entry)
        else:
            self.entries[producer_id] = append.entry
        if append.began is not None:
            self._open[append.began] = producer_id
        return () if prepared.ended is None else self._end([prepared.ended])

    def _end(self, transactions: Iterable[EndedTransaction]) -> tuple[AbortedTransaction, ...]:
        aborted = []
        for ended in transactions:
            if ended.is_aborted:
                aborted.append(self._line(ended))
            del self._open[ended.first_offset]
            self._ended[ended.first_offset] = ended.last_offset
        return tuple(aborted)

    def replay(
        self, header: BatchHeader, marker: Marker | None, append_time_ms: int
    ) -> tuple[AbortedTransaction, ...]:
        """A batch that lies in the log already, at a load.

        What a producer writes without a transaction tells that its last one had ended.
        """
        lost: tuple[AbortedTransaction, ...] = ()
        known = self.entries.get(header.producer_id)
        if known is not None and not header.is_control and not header.is_transactional:
            lost = self._end_without_marker([known], header.base_offset)
        prepared = self.prepare(header, marker, Origin.REPLICATION)
        return (*lost, *self.commit(prepared, append_time_ms))

    def pass_loss(self, offset: int) -> tuple[AbortedTransaction, ...]:
        """At a load: a repair gave up entries in front of that offset, markers perhaps.

        NOTE: nothing tells how transactions ended that were open there, nor whether. They count as
        aborted: what goes on behind the loss is another one.
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
        """As Kafka after a load: a snapshot holds of each producer no more than its last batch."""
        for each in self.entries.values():
            while len(each.sent) > 1:
                each.sent.popleft()

    @property
    def is_empty(self) -> bool:
        """No producer is known, and no transaction has ended above the high watermark."""
        return not self.entries and not self._ended

    @property
    def open_offsets(self) -> list[int]:
        """First offsets of the transactions that are open."""
        return list(self._open)

    def begins_at(self, first: int, offset: int) -> None:
        """Of a transaction that is open: there is no batch before that offset, of it or another."""
        self._begins[first] = offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Of the oldest transaction that is open, or decided above the high watermark."""
        return min((*self._open, *self._ended), default=None)

    def last_stable_offset(
        self, high_watermark: int, log_start: int = 0, start_batch: int | None = None
    ) -> int:
        """What a reader of committed records may read up to, and cleaning.

        Where the log begins behind an open transaction's first offset: `start_batch`, the first
        offset of the batch that the log's start lies in, or of the first one behind it. None: there
        is none yet.
        """
        unstable = self.first_unstable_offset
        if unstable is not None:
            is_gone = unstable < log_start
            unstable = start_batch if is_gone else self._begins.get(unstable, unstable)
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def pass_high_watermark(self, offset: int) -> None:
        """Transactions whose marker is below it are decided for good."""
        for first in [first for first, last in self._ended.items() if last < offset]:
            del self._ended[first]
            self._begins.pop(first, None)

    def start_at(self, log_start: int) -> None:
        """The log begins later now. Producers stay known, as in Kafka."""
        self.pass_high_watermark(log_start)
        self.end_offset = max(self.end_offset, log_start)

    def expire(self, now_ms: int) -> list[int]:
        """Forgets those that were idle too long; the ids of those that nothing is known of now."""
        is_gone = self._judge(now_ms)
        gone = [each.producer_id for each in self.entries.values() if is_gone(each)]
        for producer_id in gone:
            del self.entries[producer_id]
        return gone

    def last_entries(self) -> dict[int, LastEntry]:
        """Of each producer what cleaning keeps, header-only if need be."""
        return {
            each.producer_id: LastEntry(each.last_data_offset, each.epoch)
            for each in self.entries.values()
            if not each.is_forgotten
        }

    def snapshot(self) -> Iterator[ProducerSnapshot]:
        for each in self.entries.values():
            last = each.sent[-1] if each.sent else None
            first = each.transaction_first_offset
            yield ProducerSnapshot(
                each.producer_id,
                each.epoch,
                each.last_sequence,
                each.last_data_offset,
                last.offset_delta if last else 0,
                each.last_timestamp_ms,
                each.coordinator_epoch,
                -1 if first is None else first,
                each.last_append_time_ms,
            )

    def load(self, snapshot: Iterable[ProducerSnapshot], end_offset: int, now_ms: int) -> None:
        """Begins anew from a snapshot that was taken at `end_offset`; later batches are replayed.

        So a log is truncated, too: to nothing and from a snapshot at or below its end, or without
        one from the log's start.
        """
        self.entries.clear()
        self._open.clear()
        self._ended.clear()
        self._begins.clear()
        self.end_offset = end_offset
        is_gone = self._judge(now_ms)
        for each in snapshot:
            entry = _entry_of(each)
            if is_gone(entry):
                continue
            self.entries[each.producer_id] = entry
            if entry.transaction_first_offset is not None:
                self._open[entry.transaction_first_offset] = each.producer_id

    def _judge(self, now_ms: int) -> Callable[[ProducerEntry], bool]:
        """Whether nothing is to be known of an entry. One that is only forgotten is marked."""
        oldest_ms, by_record_time = now_ms - self.expiration_ms, self._by_record_time()

        def is_gone(entry: ProducerEntry) -> bool:
            if entry.transaction_first_offset is None and entry.last_timestamp_ms <= oldest_ms:
                entry.is_forgotten = True
            is_old = by_record_time or entry.last_append_time_ms <= oldest_ms
            return entry.is_forgotten and is_old

        return is_gone

    def _line(self, ended: EndedTransaction) -> AbortedTransaction:
        """Of the transaction index: stable is where another producer's next open one began."""
        others = (first for first, who in self._open.items() if who != ended.producer_id)
        stable = min(others, default=ended.last_offset + 1)
        return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)


def _entry_of(snapshot: ProducerSnapshot) -> ProducerEntry:
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
