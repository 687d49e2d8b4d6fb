"""The stream of a reader: receives entries; sends permits, checks and seeks.

* Permits (messages) that the broker holds, plus messages that wait to be read, make up the receiver
  queue size. After a lost connection the broker holds none, and gets the difference.
* A new connection continues after the last entry received, so nothing is lost or repeated. For the
  same reason a start at "latest" is turned into a message id before the first connection.
* On a Kafka topic the position is an offset. The broker reports the first one with each start,
  because it sends whole batches.
* A pending check ("is there more?") or seek is sent again on a new connection.
* An offset that the log does not have, because it has been deleted or was never written, ends the
  stream with Kafka's error; a seek restarts it, as with Kafka's consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from typing import Any

from ledgerfold.broker.client.messages.configs import ReaderConfig
from ledgerfold.broker.client.messages.declared import declared
from ledgerfold.broker.client.messages.start import start_after, start_at_offset
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import AnyDelivery, DeliveredRun, Delivery, Inbox
from ledgerfold.broker.client.streams.receiving_stream import ReceivingStream
from ledgerfold.broker.wire.frames import is_bulk, received_entries
from ledgerfold.storage.entry import Buffer, Codec
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind, LedgerfoldError
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.plain_entries import PlainRows, plain_rows
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.v1 import data_pb2

_RUNS_PER_QUEUE = 4


class ReadStream(ReceivingStream):
    """The stream of one reader. Event loop only, except `return_permits`."""

    def __init__(
        self,
        connection: Connection,
        config: ReaderConfig,
        start: data_pb2.StartPosition,
        inbox: Inbox,
    ) -> None:
        what = f"reader {config.reader_name or ''!r} of topic {config.topic}"
        super().__init__(connection, what, inbox, config.receiver_queue_size)
        # One name, also after a lost connection.
        self._config, self._subscription = config, config.subscription
        # The starts of the next and of the last connection.
        self._start = start
        self._opened_at = start
        # The permits of a run are returned together, when its first message is read.
        self._run_max = max(1, config.receiver_queue_size // _RUNS_PER_QUEUE)
        self._ids = count(1)
        self._checks: dict[int, asyncio.Future[bool]] = {}
        self._seek: tuple[int, asyncio.Future[None]] | None = None
        self.is_kafka = False
        # Kafka topics: the offset of the last start.
        self._first_offset = 0
        # Reported by the broker: compaction no longer moves this reader below its horizon.
        self._is_raw = False
        # The topic was terminated, and all of it was received.
        self.has_reached_end = False

    # Requests of the reader.

    def _grant(self) -> None:
        if self.is_connected and (more := self._permits.to_grant()):
            self._ask(data_pb2.ReadRequest(permits=more))

    async def check(self) -> bool:
        """Returns whether there is an entry that was not taken. True: it has arrived.

        Raises as `answered`.
        """
        self.raise_ended()
        if not self.inbox.is_empty:
            return True
        check_id = next(self._ids)
        answer: asyncio.Future[bool] = self.loop.create_future()
        self._checks[check_id] = answer
        if self.is_connected:
            self._ask(data_pb2.ReadRequest(check_id=check_id))
        try:
            return await self.answered(answer)
        finally:
            self._checks.pop(check_id, None)

    async def seek(self, start: data_pb2.StartPosition) -> None:
        """Moves to `start`. From this call on, no entry of the old position is delivered.

        Raises as `answered`; the stream moves to `start` all the same once it is connected. A
        stream that ended with an out-of-range offset is restarted.
        """
        if _is_out_of_range(self.error):
            self._restart()
            self.inbox.recover()
        self.raise_ended()
        seek_id, answer = next(self._ids), self.loop.create_future()
        self._start = start
        self._is_raw = self.has_reached_end = False
        self._seek = seek_id, answer
        self._permits.on_taken(self.inbox.clear())
        if self.is_connected:
            self._ask_seek(seek_id)
            self._grant()
        await self.answered(answer)

    def _ask_seek(self, seek_id: int) -> None:
        seek = data_pb2.ReadSeek(start=self._start, seek_id=seek_id)
        self._ask(data_pb2.ReadRequest(seek=seek))

    # Implementation of the stream.

    def _start_call(self) -> Any:
        return self.connection.read()

    def _open_frame(self) -> bytes:
        self._opened_at = self._start
        step = data_pb2.ReadOpen(
            topic=self._config.topic,
            start=self._start,
            read_compacted=self._config.is_read_compacted,
            reader_name=self._config.reader_name or "",
            subscription=self._subscription,
            is_raw=self._is_raw,
            read_committed=self._config.read_committed,
            reads_pulsar_entries=True,
            schema=declared(self._config.schema),
            permits=self._permits.missing,
        )
        return bytes(data_pb2.ReadRequest(open=step).SerializeToString())

    def _on_open(self, response: bytes) -> None:
        self._requests.clear()
        ready = data_pb2.ReadResponse.FromString(response).ready
        self.is_kafka = ready.codec == data_pb2.ENTRY_CODEC_KAFKA
        self._permits.grant(ready.permits)
        if self._seek is not None and self._opened_at is not self._start:
            self._ask_seek(self._seek[0])
        else:
            # The connection was opened at the target of the seek, if there was one.
            self._start_at(ready.first_offset)
            self._settle_seek()
        self._grant()
        for check_id in self._checks:
            self._ask(data_pb2.ReadRequest(check_id=check_id))

    def _on_response(self, response: bytes) -> None:
        if is_bulk(response):
            self._on_entries(received_entries(response))
            return
        message = data_pb2.ReadResponse.FromString(response)
        if self._seek is None:
            self._is_raw |= message.is_raw
            self.has_reached_end |= message.end_of_topic
        self._on_entries(memoryview(entry) for entry in message.entries)
        if self._seek is not None and message.seek_id == self._seek[0]:
            self._start_at(message.first_offset)
            self._settle_seek()
        for check_id in message.end_of_data_check_ids:
            self._settle_check(check_id, False)
        for check_id in message.more_check_ids:
            self._settle_check(check_id, True)

    def _on_entries(self, entries: Iterable[Buffer]) -> None:
        deliveries: list[AnyDelivery] = []
        for rows in plain_rows(entries, self._run_max):
            if isinstance(rows, PlainRows):
                deliveries.append(DeliveredRun(rows))
                continue
            entry = memoryview(rows)
            deliveries.append(Delivery(read_served_header(entry), entry, 0, self._first_offset))
        if not deliveries:
            return
        messages = sum(delivery.messages for delivery in deliveries)
        self._permits.received(messages)
        if self._seek is not None:
            # These entries belong to the old position.
            self._permits.on_taken(messages)
            self._grant()
            return
        self._start = _start_after(deliveries[-1])
        self.inbox.put(deliveries)
        # The entries answer the check; the broker's own answer may have to wait for permits.
        for check_id in self._checks:
            self._settle_check(check_id, True)

    def _start_at(self, first_offset: int) -> None:
        """Records the offset at which the broker has started."""
        if self.is_kafka:
            self._first_offset = first_offset
            self._start = start_at_offset(first_offset)

    def _settle_seek(self) -> None:
        if self._seek is None:
            return
        answer = self._seek[1]
        self._seek = None
        if not answer.done():
            answer.set_result(None)

    def _settle_check(self, check_id: int, has_more: bool) -> None:
        answer = self._checks.get(check_id)
        if answer is not None and not answer.done():
            answer.set_result(has_more)

    def _on_end(self, error: LedgerfoldError) -> None:
        self.inbox.fail(error)
        answers: list[asyncio.Future[Any]] = list(self._checks.values())
        if self._seek is not None:
            answers.append(self._seek[1])
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)


def _is_out_of_range(error: LedgerfoldError | None) -> bool:
    return isinstance(error, KafkaError) and error.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE


def _start_after(delivery: AnyDelivery) -> data_pb2.StartPosition:
    """Returns the start at the entry after `delivery`."""
    if isinstance(delivery, DeliveredRun):
        return start_after(delivery.rows.last)
    header = delivery.header
    if header.codec == Codec.KAFKA:
        return start_at_offset(read_batch_header(delivery.data, header.header_bytes).next_offset)
    return start_after(header.position)
