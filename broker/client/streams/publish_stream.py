"""The stream of a producer: sends entries and receives receipts, without loss or duplicates.

1. `submit` queues an entry; the sender puts several small ones into one frame.
2. Receipts are received in order, one for several entries if the broker can combine them. An entry
  stays in `_sent` until it has its receipt.
3. After a lost connection the producer is reopened under its name, and everything without a receipt
  is resent, in order. The broker drops entries that it has stored already (their sequence id is not
  above the highest one known) and answers with position (-1, -1).
4. If the broker then reports a higher sequence id than was ever sent, another producer has
  published under the same name: resent entries would be taken for its duplicates. They fail, with
  NotAllowed.
5. An entry without a receipt after the send timeout fails, with Timeout. It may have been stored.
6. An exclusive producer names the topic's epoch when it is reopened. If another one had access
  meanwhile, its messages fail, with ProducerFenced.
7. On a Kafka topic the broker recognizes resent batches by their sequence numbers, and a refused
  batch does not end the stream (sequences.py).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.declared import declared
from ledgerfold.broker.client.messages.options import ProducerAccessMode
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.pending import NOWHERE, Outcome, PendingEntry
from ledgerfold.broker.client.streams.reconnecting_stream import ReconnectingStream
from ledgerfold.broker.client.streams.sequences import Sequences
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, Position
from ledgerfold.storage.error_codec import decode_error
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed, ServiceError, Timeout
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.v1 import data_pb2

# A frame costs about as much as 100 KB of data: small entries share a frame.
FRAME_BYTES = 512 * 1024
_FRAME_ENTRIES_MAX = 1000


def _ignore(_: object) -> None:
    """Ignores an event before `attach`; no entry can have been submitted then."""


class PublishStream(ReconnectingStream):
    """The stream of one producer. `submit` is thread-safe."""

    def __init__(self, connection: Connection, config: ProducerConfig) -> None:
        self._topic = config.topic
        self.producer_name = config.producer_name or ""
        super().__init__(connection, f"producer {self.producer_name!r} of topic {self._topic}")
        self.partition = partition_index(self._topic)
        # Reported by the broker when the stream was first opened.
        self.last_sequence_id = -1
        # Including entries without a receipt.
        self._highest_sent = -1
        self.entry_bytes_max = ENTRY_BYTES_MAX
        # Reported by the broker when the stream was first opened.
        self.codec = data_pb2.ENTRY_CODEC_NATIVE
        # Kafka topics only.
        self.batch_bytes_max = 0
        self.sequences: Sequences | None = None
        self._schema = declared(config.schema)
        # The epoch of the last connection; messages name it.
        self.schema_version = b""
        self._access_mode = config.access_mode
        # The topic's epoch at the last connection; None before it, and for a Shared producer.
        self._topic_epoch: int | None = None
        self._send_timeout_s = config.send_timeout_millis / 1000
        self._done: Callable[[Sequence[Outcome]], None] = _ignore
        self._ended: Callable[[LedgerfoldError], None] = _ignore
        self._unsent: deque[PendingEntry] = deque()
        self._sent: deque[PendingEntry] = deque()
        self._is_woken = False
        self._watch: asyncio.TimerHandle | None = None

    def attach(
        self,
        on_done: Callable[[Sequence[Outcome]], None],
        on_end: Callable[[LedgerfoldError], None],
    ) -> None:
        """Sets the callbacks for answered entries (in order) and for the end; before `submit`."""
        self._done, self._ended = on_done, on_end
        if self.error is not None:
            on_end(self.error)

    def submit(self, entry: PendingEntry) -> None:
        """Queues an entry. Sequence ids must rise from call to call. Thread-safe."""
        entry.deadline_s = time.monotonic() + self._send_timeout_s
        self._unsent.append(entry)
        if not self._is_woken:
            self._is_woken = True
            self.loop.call_soon_threadsafe(self._on_work)

    def _on_work(self) -> None:
        self.wake()
        if self.error is not None:
            self._fail_all(self.error)
        elif self._send_timeout_s and self._watch is None:
            self._watch = self.loop.call_later(self._send_timeout_s, self._expire)

    # Implementation of the stream.

    def _start_call(self) -> Any:
        return self.connection.publish()

    def _open_frame(self) -> bytes:
        step = data_pb2.PublishOpen(
            topic=self._topic,
            producer_name=self.producer_name,
            combines_receipts=True,
            access_mode=data_pb2.ProducerAccessMode.Name(self._access_mode.value),
            topic_epoch=self._topic_epoch,
            schema=self._schema,
        )
        return bytes(data_pb2.PublishRequest(open=step).SerializeToString())

    def _is_waiting(self, response: data_pb2.PublishResponse) -> bool:
        return bool(response.is_queued)

    def _on_open(self, response: data_pb2.PublishResponse) -> None:
        ready = response.ready
        if not self._opened.done():
            self.producer_name = ready.producer_name
            self.last_sequence_id = ready.last_sequence_id
            self.description = f"producer {ready.producer_name!r} of topic {self._topic}"
            self._highest_sent = ready.last_sequence_id
            self.codec = ready.codec
        elif ready.codec != self.codec:
            raise NotAllowed(
                f"{self._topic} was deleted and recreated as a topic of another kind, which the "
                f"{self.description} cannot publish to. Create a new producer."
            )
        elif ready.last_sequence_id > self._highest_sent:
            raise NotAllowed(
                f"Another producer published up to sequence id {ready.last_sequence_id} under the "
                f"name of the {self.description} while this one was not connected. Its messages "
                "without a receipt may not be stored: create a new producer and send them again."
            )
        self.schema_version = ready.schema_version
        if self._access_mode != ProducerAccessMode.Shared:
            self._topic_epoch = ready.topic_epoch
        self.entry_bytes_max = ready.entry_bytes_max or ENTRY_BYTES_MAX
        self.batch_bytes_max = ready.kafka.batch_bytes_max

    def _next_frame(self) -> bytes | None:
        unsent = self._unsent
        self._close_gap()
        if not unsent:
            self._is_woken = False
            if not unsent:  # again: a submit may have seen the flag before it was cleared
                return None
        entries: list[bytes] = []
        size = 0
        while unsent and size < FRAME_BYTES and len(entries) < _FRAME_ENTRIES_MAX:
            if self.sequences is not None:
                if not self.sequences.may_send(unsent[0]):
                    break
                self.sequences.number(unsent[0])
            entry = unsent.popleft()
            self._sent.append(entry)
            entries += entry.parts
            size += entry.size_bytes
        if not entries:
            return None  # receipts must come first: they wake the sender
        self._highest_sent = max(self._highest_sent, self._sent[-1].sequence_id)
        return encode_entries(entries)

    def _close_gap(self) -> None:
        sequences = self.sequences
        if sequences is None or not sequences.has_gap or self._sent:
            return
        if sequences.is_settled(self._unsent):
            self._unsent.extendleft(reversed(sequences.close_gap()))

    def _on_response(self, response: data_pb2.PublishResponse) -> None:
        outcomes: list[Outcome] = []
        for receipt in response.receipts:
            if not self._is_due(receipt):
                self._done(outcomes)
                raise ServiceError(
                    f"Receipt for sequence id {receipt.sequence_id}, which is not the oldest."
                )
            ledger_id, entry_id, refusal = receipt.ledger_id, receipt.entry_id, _refusal_of(receipt)
            unconfirmed = receipt.entries or 1
            while unconfirmed:
                entry = self._take_sent(unconfirmed)
                outcomes += self._outcomes(entry, Position(ledger_id, entry_id), refusal)
                unconfirmed -= entry.entries
                if ledger_id >= 0:
                    entry_id += entry.entries
        self._done(outcomes)
        if self.sequences is not None:
            self.wake()

    def _is_due(self, receipt: data_pb2.Receipt) -> bool:
        """Returns whether a receipt is for the oldest entries."""
        unconfirmed = receipt.entries or 1
        for entry in self._sent:
            if unconfirmed <= entry.entries:
                return entry.sequence_id_of(unconfirmed - 1) == receipt.sequence_id
            unconfirmed -= entry.entries
        return False

    def _take_sent(self, entries_max: int) -> PendingEntry:
        """Takes the oldest entries that are in flight together, or some of them."""
        oldest = self._sent[0]
        taken = oldest.take(entries_max)
        if taken is oldest:
            self._sent.popleft()
        return taken

    def _outcomes(
        self, entry: PendingEntry, position: Position, refusal: LedgerfoldError | None
    ) -> list[Outcome]:
        sequences = self.sequences
        if sequences is None:
            return [Outcome(entry, position, refusal)]
        answers = sequences.answered(entry, refusal)
        if not self._sent and sequences.is_settled(self._unsent):
            answers += sequences.refused_ones()
        return [
            Outcome(each.entry, position if each.entry is entry else NOWHERE, each.refusal)
            for each in answers
        ]

    def _on_disconnect(self) -> None:
        returned: Sequence[PendingEntry] = self._sent
        if self.sequences is not None:
            returned = self.sequences.on_disconnect(self._sent)
        self._unsent.extendleft(reversed(returned))
        self._sent.clear()

    def _on_end(self, error: LedgerfoldError) -> None:
        if self._watch is not None:
            # The timer would keep a reference to the producer and the connection until it is due.
            self._watch.cancel()
        self._ended(error)
        self._fail_all(error)

    def _fail_all(self, error: LedgerfoldError) -> None:
        taken_back = [] if self.sequences is None else self.sequences.all_taken_back()
        failed = [*taken_back, *self._sent, *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        self._done([Outcome(entry, NOWHERE, error) for entry in failed])

    def _expire(self) -> None:
        """Fails entries older than the send timeout."""
        now_s = self.loop.time()
        expired = [] if self.sequences is None else self.sequences.take_due(now_s)
        was_sent = bool(self._sent) and self._sent[0].deadline_s <= now_s
        for queue in (self._sent, self._unsent):
            while queue and queue[0].deadline_s <= now_s:
                expired.append(queue.popleft())
        oldest = (self._sent or self._unsent or (None,))[0]
        self._watch = None
        if oldest is not None:
            self._watch = self.loop.call_at(oldest.deadline_s, self._expire)
        if was_sent:
            # Receipts of expired entries must not be treated as those of later ones.
            self.drop()
        if self.sequences is not None:
            for entry in expired:
                self.sequences.give_up(entry)
        if expired:
            error = Timeout(
                f"No receipt within {self._send_timeout_s:g} s for the {self.description}. "
                "The message may have been stored."
            )
            self._done([Outcome(entry, NOWHERE, error) for entry in expired])


def _refusal_of(receipt: data_pb2.Receipt) -> LedgerfoldError | None:
    if not receipt.HasField("refusal"):
        return None
    refusal = receipt.refusal
    return decode_error(refusal.reason, refusal.message, refusal.attributes)
