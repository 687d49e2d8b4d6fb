"""A connected producer: appends in order, refuses duplicates, sends receipts once durable.

Receipts arrive in the order of the entries (broker/topics/receipts.py). A duplicate's receipt
waits until everything appended before it is durable: the original may still be in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.topics.access import Claim
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.receipts import NOWHERE, Receipt, ReceiptQueue
from ledgerfold.storage.entry import (
    Buffer,
    Codec,
    EntryHeader,
    Position,
)
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.segment import size_of
from ledgerfold.storage.writer import Body
from ledgerfold.v1.records_pb2 import ProducerRecord

# The first chunk of message 0 has -1.
_BEFORE_ALL_IDS = -2
# The codecs that clients of this package do not send.
REFUSED_CODECS = frozenset((Codec.PULSAR,))


class Producer(ReceiptQueue):
    """A producer that belongs to one stream. Created by Topic.attach_producer().

    `duplicates_through`: only entries up to that sequence id are duplicates. None: entries up to
    the last one stored, which rises with each entry. `is_pulsar_client`: it sends entries of
    Pulsar's codec.
    """

    def __init__(
        self,
        topic: LoadedTopic,
        log: TopicLog,
        deduplication: Deduplication,
        name: str,
        record: ProducerRecord,
        on_detached: Callable[[Producer], object],
        claim: Claim,
        *,
        duplicates_through: int | None = None,
        is_pulsar_client: bool = False,
    ) -> None:
        super().__init__(topic, log.state, name, on_detached)
        self.record, self.claim = record, claim
        # The epoch of the topic when it was connected.
        self.topic_epoch: int | None = None
        # Whether the client accepts receipts for several entries.
        self.combines_receipts = False
        self._deduplication, self._tail = deduplication, log.tail
        self._stored_before, self._is_pulsar_client = duplicates_through, is_pulsar_client

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that is a duplicate for this producer. -1: none is."""
        return -1 if self._stored_before == -1 else self.record.last_sequence_id

    def append_all(self, entries: Iterable[Buffer], *, is_new: bool = False) -> None:
        """Appends entries as received, in order, up to the first bad one.

        `is_new`: they are not duplicates, regardless of their ids. Raises InvalidRequest, and the
        error that failed the log.
        """
        self.check()
        headers: list[EntryHeader] = []
        bodies: list[Body] = []
        stored_before = self._stored_before
        last_id = self.record.last_sequence_id if stored_before is None else stored_before
        if is_new:
            last_id = _BEFORE_ALL_IDS
        try:
            for entry in entries:
                header = check_entry(entry, self._entry_bytes_max)
                check_codec(header, is_pulsar_client=self._is_pulsar_client)
                if header.sequence_id <= last_id:
                    self._append(headers, bodies)
                    headers, bodies = [], []
                    self._answer_duplicate(header)
                    continue
                if stored_before is None:
                    last_id = header.sequence_id
                headers.append(header)
                bodies.append((entry[header.header_bytes :],))
        finally:
            self._append(headers, bodies)

    def _answer_duplicate(self, header: EntryHeader) -> None:
        if header.sequence_id < 0:
            raise InvalidRequest(f"Sequence id {header.sequence_id} is negative; the minimum is 0.")
        # The original may still be in flight, from a closed connection.
        through = self._tail.last_appended
        receipt = Receipt(NOWHERE, header.sequence_id, header.size_bytes, through)
        self.add(receipt, is_new=False)

    def _append(self, headers: list[EntryHeader], bodies: list[Body]) -> None:
        if not headers:
            return
        now_ms = self.emulated_now_ms()
        if now_ms is not None:
            headers = [header._replace(publish_time_ms=now_ms) for header in headers]
        done = 0
        for position, count in self._tail.append_all(headers, bodies, self.record.number):
            self._appended(position, headers[done : done + count])
            done += count

    def _appended(self, first: Position, headers: list[EntryHeader]) -> None:
        """Records entries that were appended from `first` on."""
        count, size_bytes, sequence_id = len(headers), size_of(headers), headers[-1].sequence_id
        self._deduplication.appended(self.record, sequence_id)
        messages = sum(header.message_count for header in headers)
        self._topic.count_in(messages, size_bytes, count)
        ledger_id, first_id = first
        if self.combines_receipts:
            last = Position(ledger_id, first_id + count - 1)
            self.add(Receipt(first, sequence_id, size_bytes, last, entries=count))
            return
        for entry_id, header in enumerate(headers, first_id):
            position = Position(ledger_id, entry_id)
            self.add(Receipt(position, header.sequence_id, header.size_bytes, position))

    def refuse(self, sequence_id: int, size_bytes: int, refusal: LedgerfoldError) -> None:
        """Queues the refusal of an entry that was not appended: its receipt has the reason."""
        through = self._tail.last_appended
        self.add(Receipt(NOWHERE, sequence_id, size_bytes, through, refusal), is_new=False)


def check_codec(header: EntryHeader, *, is_pulsar_client: bool) -> None:
    """Raises InvalidRequest for an entry that its client cannot have built."""
    if header.codec in REFUSED_CODECS and not is_pulsar_client:
        raise InvalidRequest("Entries of codec `pulsar` are accepted only over Pulsar's protocol.")
