"""Publishers that retry: unacknowledged entries are sent again, under the same ids."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from ledgerfold.broker.rpc.publish import publish
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError, ProducerBusy, TopicNotFound, TopicTerminated
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1 import data_pb2
from tests.simulation.connections import Connection
from tests.simulation.life import Attempt
from tests.simulation.moments import RECEIPT
from tests.support.pulsar_entries import entry as as_entry
from tests.support.pulsar_entries import message, metadata_of, packed

if TYPE_CHECKING:
    from tests.simulation.world import World

KEYS: tuple[bytes | None, ...] = (*(bytes((each,)) for each in b"abcdefghij"), b"", None)
# The property with a version; and the distance of event times.
VERSION, EVENT_TIMES_MS = "version", 200
HANDLER = publish
# Acknowledged entries that a publisher may send once more.
REMEMBERED = 12
_LEAVING_STEPS = 200


class Publisher:
    """One producer name on one topic."""

    def __init__(self, world: World, topic: str, name: str) -> None:
        self._world, self.topic, self.name = world, topic, name
        self._pending: OrderedDict[int, tuple[bytes, Attempt]] = OrderedDict()
        self._sequence = -1
        self._skew = world.random.choice((1, 2, 4))
        self._is_timely = world.random.random() < 0.7
        # The last acknowledged entries.
        self._done: OrderedDict[int, tuple[bytes, Attempt]] = OrderedDict()
        self._unanswered: deque[int] = deque()
        # Entries that were already sent on this connection.
        self._sent = 0
        # It stays disconnected until it has something to send.
        self._left_ms: int | None = None
        # When the connection broke.
        self._cut_ms: int | None = None
        self._connection: Connection | None = None
        self._wanted = asyncio.Event()
        self._task = world.client(self._run())

    @property
    def is_idle(self) -> bool:
        """No entry waits for an acknowledgement."""
        return not self._pending

    def publish(self, random: Random, entries: int) -> None:
        """Publishes this number of entries of any shape: single messages, batches, tombstones,
        without keys.
        """
        for _ in range(entries):
            count = random.choice((1, 1, 1, 2, 3, 5))
            is_batch = count > 1 or random.random() < 0.3
            self._add(random, count, is_batch=is_batch)
        self._world.note(f"{self.name} has {entries} entries to send, up to #{self._sequence}")
        self._wanted.set()

    def delete(self, random: Random, keys: Sequence[bytes]) -> None:
        """Publishes an entry for each of the keys, which deletes it."""
        for key in keys:
            self._add(random, 1, is_batch=False, deletes=key)
        self._world.note(f"{self.name} deletes {keys}, up to #{self._sequence}")
        self._wanted.set()

    def _add(
        self, random: Random, count: int, *, is_batch: bool, deletes: bytes | None = None
    ) -> None:
        builder = NativeBatchBuilder(self.name)
        now_ms = self._world.clock.now_ms()
        rows = []
        for index in range(count):
            number = self._sequence + 1 + index
            # A few keys recur, and are deleted.
            key = KEYS[min(random.randrange(len(KEYS)) for _ in range(self._skew))]
            # Usually numbers, including spaces; rising and falling like versions and event times.
            value = f"{number * 7 % 5}.{number:05}" if number % 4 else f"{self.name}:{number}"
            if deletes is not None:
                key, value = deletes, ""
            elif random.random() < 0.3:
                value = ""
            elif random.random() < 0.4:
                value = value.ljust(random.randrange(300))
            is_null = not value and random.random() < 0.5
            # With ties, some without.
            version = number * 7 % 5
            row = StoredMessage(
                batch_index=index if is_batch else -1,
                batch_size=count,
                key=key,
                key_is_base64=False,
                value=value.encode(),
                value_is_null=is_null,
                properties={VERSION: str(version)} if version else {},
                event_time_ms=self._event_time_ms(number, now_ms),
                sequence_id=number,
                ordering_key=None,
            )
            builder.add(
                None if is_null else row.value,
                key,
                properties=row.properties,
                event_time_ms=row.event_time_ms,
            )
            rows.append(row)
        self._sequence += count
        if self._world.is_mixed and self._sequence % 3:
            entry = _pulsar_entry(self.name, rows, now_ms, is_batch=is_batch)
        else:
            entry = builder.build(
                sequence_id=self._sequence, publish_time_ms=now_ms, plain=not is_batch
            )
        attempt = Attempt(self.name, self._sequence, tuple(rows), now_ms, self._world.loop.steps)
        self._pending[self._sequence] = (entry, attempt)
        self._world.oracle.attempted(self.topic, attempt)

    def _event_time_ms(self, number: int, now_ms: int) -> int:
        """With ties, some without a time: old ones, or recent ones that soon become old."""
        back = number * 7 % 5
        if not (back and self._is_timely):
            return back
        return now_ms - now_ms % EVENT_TIMES_MS - back * EVENT_TIMES_MS

    def resend(self, count: int) -> None:
        """Resends the last acknowledged entries, like a client that has lost its state."""
        known = list(self._done)[-count:]
        if not known:
            return
        again = {each: self._done[each] for each in known}
        self._pending = OrderedDict(sorted({**again, **self._pending}.items()))
        self._world.note(f"{self.name} sends #{known[0]} to #{known[-1]} once more")
        self.cut(late=False)
        self._wanted.set()

    def leave(self) -> None:
        """Disconnects normally, and stays away until there is something to send."""
        if self._connection is not None and not self._pending:
            self._world.note(f"{self.name} leaves")
            self._left_ms = self._world.clock.now_ms()
            # The broker notices it in the millisecond in which it is reported.
            self._world.loop.hold(_LEAVING_STEPS)
            self._connection.finish()

    def cut(self, *, late: bool) -> None:
        """The connection breaks. `late`: the broker notices some time later."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._cut_ms = self._world.clock.now_ms()
        if late:
            self._world.client(self._cut_later(connection))
        else:
            connection.cut()
        connection.closed = True
        connection.changed.set()

    async def _cut_later(self, connection: Connection) -> None:
        await asyncio.sleep(self._world.random.random() * 0.3)
        connection.closed = False
        connection.cut()

    async def _run(self) -> None:
        pause_s = 0.1
        while True:
            while not self._pending:
                self._wanted.clear()
                await self._wanted.wait()
            self._left_ms = None
            await self._world.is_up.wait()
            sent = self._sequence, len(self._pending)
            await self._connect()
            has_moved = sent != (self._sequence, len(self._pending))
            pause_s = 0.1 if has_moved else min(2.0, pause_s * 1.3)
            await asyncio.sleep(self._world.random.random() * pause_s)

    async def _connect(self) -> None:
        # The sequence ids without a receipt on this connection.
        self._unanswered = unanswered = deque[int]()
        connection = Connection(
            self._world, HANDLER, lambda frame: self._on_sent(frame, unanswered)
        )
        self._connection, self._cut_ms = connection, None
        opening = data_pb2.PublishOpen(
            topic=self.topic,
            producer_name=self.name,
            combines_receipts=self._world.random.random() < 0.5,
        )
        connection.send(data_pb2.PublishRequest(open=opening).SerializeToString())
        await connection.wait()
        if not connection.closed:
            self._sent = 0
            self._world.oracle.connected(self.topic, self.name, connection)
            await self._stream(connection)
            # A refused attempt does not count: the producer is still disconnected.
            ends_ms = (connection.served_until_ms, self._cut_ms)
            away_ms = min((each for each in ends_ms if each is not None), default=None)
            self._world.oracle.disconnected(self.topic, self.name, self._left_ms, away_ms)
        if self._left_ms is not None:
            self._world.loop.let_go()
        self._on_refused(connection.error)
        if connection.error is not None and not isinstance(
            connection.error, ProducerBusy | TopicNotFound | TopicTerminated
        ):
            self._world.note(f"{self.name} is disconnected: {connection.error!r:.120}")
        if self._connection is connection:
            self._connection = None

    def _on_refused(self, error: LedgerfoldError | None) -> None:
        """Gives up a rejected entry; later entries are tried, because topics are recreated."""
        oracle = self._world.oracle
        if isinstance(error, TopicTerminated):
            oracle.told_terminated(self.topic)
        elif not (isinstance(error, TopicNotFound) and oracle.is_beyond(self.topic)):
            return
        self._pending.clear()

    async def _stream(self, connection: Connection) -> None:
        while not connection.closed:
            self._send_new(connection)
            self._wanted.clear()
            waits = {
                asyncio.ensure_future(self._wanted.wait()),
                asyncio.ensure_future(connection.wait()),
            }
            _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in pending:
                each.cancel()
            while connection.inbox and not connection.closed:
                self._receive(connection.take())

    def _send_new(self, connection: Connection) -> None:
        items = list(self._pending.items())[self._sent :]
        fresh = [entry for _, (entry, _) in items]
        self._unanswered.extend(sequence_id for sequence_id, _ in items)
        self._sent += len(fresh)
        while fresh:
            count = self._world.random.randrange(1, 4)
            connection.send(encode_entries(fresh[:count]))
            fresh = fresh[count:]

    def _receive(self, frame: bytes) -> None:
        response = data_pb2.PublishResponse.FromString(frame)
        for receipt in response.receipts:
            entries = receipt.entries or 1
            answered = list(islice(self._pending, entries))
            if len(answered) < entries or answered[-1] != receipt.sequence_id:
                self._world.oracle.fail(
                    f"{self.name} waits for {answered} and is told of #{receipt.sequence_id}"
                )
                return
            for sequence_id in answered:
                self._done[sequence_id] = self._pending.pop(sequence_id)
                if len(self._done) > REMEMBERED:
                    self._done.popitem(last=False)
            self._sent -= entries

    def _on_sent(self, frame: bytes, unanswered: deque[int]) -> None:
        for receipt in data_pb2.PublishResponse.FromString(frame).receipts:
            for index in range(receipt.entries or 1):
                sequence_id = unanswered.popleft()
                at = receipt.entry_id + (index if receipt.ledger_id >= 0 else 0)
                position = Position(receipt.ledger_id, at)
                self._world.oracle.acknowledged(self.topic, self.name, sequence_id, position)
            self._world.moments.reach(RECEIPT)


def _pulsar_entry(
    name: str, rows: Sequence[StoredMessage], now_ms: int, *, is_batch: bool
) -> bytes:
    """Returns the entry of a Pulsar client that sends the sizes of values."""
    first, last = rows[0], rows[-1]
    singles = []
    for row in rows:
        single, value = message(
            None if row.value_is_null else row.value,
            row.key,
            event_time=row.event_time_ms,
            sequence_id=row.sequence_id,
        )
        for property_name, content in row.properties.items():
            single.properties.add(key=property_name.encode(), value=content.encode())
        singles.append((single, value))
    described = metadata_of(
        producer_name=name.encode(), sequence_id=first.sequence_id, publish_time=now_ms
    )
    if is_batch:
        described.highest_sequence_id = last.sequence_id
        described.num_messages_in_batch = len(rows)
        return as_entry(described, packed(singles))
    ((single, value),) = singles
    described.uncompressed_size, described.event_time = len(value), single.event_time
    described.null_value = single.null_value
    described.properties.extend(single.properties)
    if single.HasField("partition_key"):
        described.partition_key = single.partition_key
    return as_entry(described, value)
