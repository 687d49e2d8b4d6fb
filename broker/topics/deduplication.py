"""Producer state for deduplication: a message sent twice is stored once.

Each producer name has a number on its topic; entry headers carry it with the sequence id of the
entry's last message. An entry is a duplicate if its sequence id is not above the highest stored
under that name (Pulsar: MessageDeduplication). The records in the metadata store are snapshots;
loading a topic replays the entry headers after them.

A producer that has not been connected for INACTIVE_MS is forgotten, as in Pulsar
(brokerDeduplicationProducerInactivityTimeoutMinutes): its later messages count as new. Its number
is not reused, and the entries that carry it stay. A load restarts that time for every producer,
because no producer could connect before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.entry import EARLIEST, LATEST, EntryHeader, Position, position_of
from ledgerfold.storage.errors import Corruption, IncompatibleFormat, LimitExceeded, MissingFile
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.limits import PRODUCERS_MAX
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.segment import record_position
from ledgerfold.v1.records_pb2 import LedgerRecord, Policies, ProducerRecord, TopicRecord

INACTIVE_MS = 360 * 60_000
_log = logging.getLogger(__name__)


class Deduplication:
    """The producers of one topic.

    In memory a producer's last sequence id is that of the last entry *appended*. A stored record
    describes the state at a durable position: otherwise a crash could lose an entry and refuse it
    when it is sent again. So a snapshot has two steps, capture() when a ledger ends and write()
    when that end is durable. Ledgers after `recorded` must stay: their headers are the only record
    of their sequence ids.
    """

    def __init__(self, stored: StoredTopic, producers: Iterable[ProducerRecord]) -> None:
        self._stored = stored
        self._producers = {each.name: each for each in producers}
        self._changed: set[str] = set()
        self._captured: list[tuple[Position, list[ProducerRecord]]] = []
        # When each producer was last known to be connected; no time is known at a load.
        self._last_active_ms: dict[str, int] = {}
        recorded = (position_of(each.position) for each in self._producers.values())
        self._recorded = min(recorded, default=LATEST)

    @property
    def recorded(self) -> Position:
        """The position through which the records are complete; later headers must be replayed."""
        return self._recorded

    @property
    def has_producers(self) -> bool:
        return bool(self._producers)

    def replay(self, last_sequence_ids: Mapping[int, int]) -> None:
        """Merges the highest sequence id per producer number, as found in entry headers."""
        for producer in self._producers.values():
            sequence_id = last_sequence_ids.get(producer.number, producer.last_sequence_id)
            if sequence_id > producer.last_sequence_id:
                producer.last_sequence_id = sequence_id
                self._changed.add(producer.name)

    async def register(self, name: str, durable: Callable[[], Position | None]) -> ProducerRecord:
        """Returns the producer named `name`; a new one is made durable first.

        `durable`: returns the last durable position. A new producer has no entry up to there.
        Raises Moved, DiskFailure, LimitExceeded.
        """
        records = list[ProducerRecord]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            producer = self._producers.get(name)
            if producer is None:
                if record.last_producer_number >= PRODUCERS_MAX:
                    raise LimitExceeded(
                        f"Producer names used on {record.name}",
                        record.last_producer_number + 1,
                        PRODUCERS_MAX,
                        "Use one of these names again, or publish to another topic.",
                    )
                record.last_producer_number += 1
                producer = ProducerRecord(
                    topic=record.name,
                    name=name,
                    number=record.last_producer_number,
                    last_sequence_id=-1,
                )
                position = durable() or EARLIEST
                producer.position.ledger_id, producer.position.entry_id = position
                batch.put(producer)
            self._last_active_ms.pop(name, None)
            records.append(producer)

        def applied() -> None:
            (producer,) = records
            if name not in self._producers:
                self._producers[name] = producer
                self._recorded = min(self._recorded, position_of(producer.position))

        await self._stored.change(edit, applied)
        return records[0]

    def disconnected(self, producer: ProducerRecord, now_ms: int) -> None:
        """Records that a producer is no longer connected: its inactive time begins."""
        self._last_active_ms[producer.name] = now_ms

    async def forget_inactive(
        self, is_connected: Callable[[str], bool], now_ms: int
    ) -> Sequence[str]:
        """Deletes the records of inactive producers and returns their names.

        Called periodically.
        """
        inactive = list[str]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            inactive.extend(self._inactive(is_connected, now_ms))
            for name in inactive:
                batch.delete("producer", record.name, name)

        # Checked first, too: there are almost never any, and then the write can be skipped.
        if self._inactive(is_connected, now_ms):
            await self._stored.change(edit, lambda: self._forget(inactive))
        return inactive

    def _inactive(self, is_connected: Callable[[str], bool], now_ms: int) -> list[str]:
        last_active_ms = self._last_active_ms
        for name in self._producers:
            if is_connected(name) or name not in last_active_ms:
                last_active_ms[name] = now_ms
        before_ms = now_ms - INACTIVE_MS
        return [name for name in self._producers if last_active_ms[name] < before_ms]

    def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            del self._producers[name]
            del self._last_active_ms[name]
            self._changed.discard(name)
        # A snapshot captured earlier must not restore them.
        self._captured = [
            (position, [each for each in copies if each.name in self._producers])
            for position, copies in self._captured
        ]
        if not self._producers:
            # No header refers to a known producer.
            self._captured, self._recorded = [], LATEST

    def appended(self, producer: ProducerRecord, sequence_id: int) -> None:
        """Records that an entry of `producer` was appended with `sequence_id`.

        That may be lower than an earlier one: a chunk that is not the last one of its message is
        never a duplicate.
        """
        producer.last_sequence_id = max(producer.last_sequence_id, sequence_id)
        self._changed.add(producer.name)

    def capture(self, position: Position) -> None:
        """Captures the state as of `position`, the last one appended."""
        copies = []
        for producer in self._producers.values():
            producer.position.ledger_id, producer.position.entry_id = position
            copy = ProducerRecord()
            copy.CopyFrom(producer)
            copies.append(copy)
        if self._changed:
            self._captured.append((position, copies))
            self._changed.clear()

    async def write(self, durable: Position) -> None:
        """Writes the newest captured state that `durable` covers. Raises like register()."""
        written = list[tuple[Position, list[ProducerRecord]]]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            written.extend(each for each in self._captured if each[0] <= durable)
            for producer in written[-1][1] if written else ():
                batch.put(producer)

        def applied() -> None:
            if written:
                del self._captured[: len(written)]
                self._recorded = written[-1][0]

        await self._stored.change(edit, applied)


def is_deduplicated(policies: Policies) -> bool:
    """Returns whether messages of Pulsar's clients can be duplicates."""
    return policies.deduplication or not policies.HasField("deduplication")


def duplicates_through(record: ProducerRecord, policies: Policies) -> int | None:
    """Returns the sequence id through which messages of one of Pulsar's clients are duplicates.

    None: the last id of the producer's name, which rises with each message. Without a policy, ids
    may be used again on one connection: Pulsar's C++ client uses an id twice if its first
    connection broke before a receipt, and never sends a message twice.
    """
    if not policies.HasField("deduplication"):
        return record.last_sequence_id
    return None if policies.deduplication else -1


def last_sequence_ids(headers: Iterable[EntryHeader]) -> dict[int, int]:
    """Returns the highest sequence id by producer number in `headers`."""
    last_ids: dict[int, int] = {}
    for header in headers:
        if header.sequence_id > last_ids.get(header.producer_number, -1):
            last_ids[header.producer_number] = header.sequence_id
    return last_ids


def headers_after(
    store: LedgerStore, topic: str, after: Position, ledgers: Sequence[LedgerRecord]
) -> Iterator[EntryHeader]:
    """Yields a topic's headers after a position; damage ends its own segment only.

    A message after the damage that is sent again is stored twice: better than losing it.
    """
    for record in ledgers:
        for segment in record.segments:
            if not segment.entries or record_position(segment, last=True) <= after:
                continue
            try:
                headers = store.headers(segment)
                yield from (header for header in headers if header.position > after)
            except (Corruption, IncompatibleFormat, MissingFile) as error:
                _log.error("%s: sequence ids after damage are unknown: %s", topic, error)
