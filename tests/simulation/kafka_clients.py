"""Clients of a Kafka topic: producers that retry, readers from any offset."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_reader import (
    KafkaReader,
    KafkaReaderOptions,
)
from ledgerfold.broker.topics.stream_reader import Checked, Entries
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.errors import (
    Corruption,
    KafkaError,
    KafkaErrorKind,
    LedgerfoldError,
    MissingFile,
    TopicExists,
    TopicNotFound,
)
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch, records_of
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import MessageId
from tests.simulation.connections import call
from tests.simulation.kafka_life import KafkaLife, Sent, Transaction
from tests.simulation.moments import RECEIPT

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.kafka_topic import KafkaTopic
    from tests.simulation.world import World

CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "internal.segment.bytes": "600",
    "delete.retention.ms": "500",
    "segment.ms": "20000",
}
# The distance of record times in a batch from now: some are so old that Kafka would forget their
# producer at once, some are in the future.
_SKEWS_MS = (0, 0, 0, -2_100_000_000, 1_800_000)
KEYS = tuple(bytes((each,)) for each in b"abcdef")
_RETRY_S = 0.05
# The batches of a producer that the broker remembers.
_REMEMBERED = 5
_MARKER_BYTES = 100


class KafkaProducer:
    """One producer id in one epoch; batches in order, some concurrently, until they are
    acknowledged.

    A plain producer has no id and does not resend failed batches. A producer whose id another one
    has got in a later epoch is a zombie: it continues, and the broker refuses it.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        number: int,
        *,
        is_plain: bool,
        is_transactional: bool,
        epoch: int = 0,
    ) -> None:
        self._world, self._topic, self.number, self.epoch = world, topic, number, epoch
        self.is_plain, self.is_transactional = is_plain, is_transactional
        self.label = f"{number}.{epoch}"
        self.is_zombie = False
        # The last acknowledged batches, with the offset of the first record of each.
        self._done: deque[tuple[bytes, list[Sent], int]] = deque(maxlen=_REMEMBERED)
        self._sequence = self._records = 0
        self._transaction: Transaction | None = None
        # Batches, as (bytes, records); None: the end of a transaction.
        self._queue: deque[tuple[bytes, list[Sent]] | None] = deque()
        self._wanted = asyncio.Event()
        # Its sequences, and their state, belong to another life.
        self.is_over = False
        self._life: KafkaLife | None = None
        self._cuts = 0
        self._aborts: Transaction | None = None
        world.client(self._run())

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def publish(self, random: Random, batches: int) -> None:
        if self.is_over:
            return
        if self.is_transactional and self._transaction is None:
            if self.is_zombie:
                # Its coordinator would not begin one.
                return
            self._transaction = Transaction()
        for _ in range(batches):
            self._queue.append(self._batch(random, random.choice((1, 1, 2, 3))))
        if self.is_transactional and random.random() < 0.6:
            assert self._transaction is not None
            self.end(random)
        self._wanted.set()

    def end(self, random: Random) -> None:
        """Ends the open transaction."""
        if self._transaction is not None and not self.is_zombie:
            self._transaction.outcome = random.choice(("commit", "abort"))
            self._transaction = None
            self._queue.append(None)
            self._wanted.set()

    @property
    def may_be_bumped(self) -> bool:
        """Returns whether no end of a transaction is in progress: a coordinator performs one at a
        time.
        """
        if self.is_plain or self.is_over or self.is_zombie:
            return False
        return self._aborts is None and None not in self._queue

    def bump(self) -> KafkaProducer:
        """Begins the next epoch of its id, which aborts its open transaction."""
        self.is_zombie = True
        newer = KafkaProducer(
            self._world,
            self._topic,
            self.number,
            is_plain=False,
            is_transactional=self.is_transactional,
            epoch=self.epoch + 1,
        )
        open_one = self._transaction
        if open_one is not None:
            open_one.outcome = "abort"
            newer.aborts(open_one)
        return newer

    def aborts(self, transaction: Transaction) -> None:
        """Aborts the transaction of its id's earlier epoch before it sends anything."""
        self._aborts = transaction
        self._wanted.set()

    async def send_again(self, broker: Broker, count: int) -> None:
        """Resends acknowledged batches: they are not appended again."""
        topic = await broker.kafka_topic(self._topic, to_write=True)
        if self._life is None or self._is_another_life():
            return
        for data, sent, first in list(self._done)[-count:]:
            try:
                (appended,) = await topic.append_batches(data, Origin.CLIENT)
            except KafkaError:
                # It may no longer be remembered: after a load, only the last one is.
                continue
            if self._is_another_life():
                return
            if not appended.is_duplicate and first + len(sent) <= self._life.log_start:
                # All its records were deleted: a load forgets such a producer, as Kafka does.
                continue
            if (appended.first_offset, appended.is_duplicate) != (first, True):
                self._world.oracle.fail(
                    f"{sent[0].id} is sent again, and is told of {appended.first_offset}; "
                    f"it is at {first}"
                )

    def _batch(self, random: Random, count: int) -> tuple[bytes, list[Sent]]:
        time_ms = self._world.clock.now_ms() + random.choice(_SKEWS_MS)
        records, sent = [], []
        for row in range(count):
            self._records += 1
            id = f"{self.label}#{self._records}"
            key, is_null = random.choice(KEYS), random.random() < 0.15
            value = None if is_null else b"x" * random.choice((1, 20))
            records.append(KafkaRecord(row, time_ms, key, value, (("id", id.encode()),)))
            each = Sent(id, key, is_null, self._transaction, time_ms)
            sent.append(each)
            self._world.oracle.kafka_sent[id] = each
        if self.is_plain:
            return build_batch(records, base_offset=0), sent
        batch = build_batch(
            records,
            base_offset=0,
            producer_id=self.number,
            producer_epoch=self.epoch,
            base_sequence=self._sequence,
            is_transactional=self.is_transactional,
        )
        self._sequence += count
        return batch, sent

    async def _run(self) -> None:
        while True:
            while not (self._queue or self._aborts):
                self._wanted.clear()
                await self._wanted.wait()
            count = self._world.loop.random.choice((1, 1, 2, 4))
            group = [self._queue[at] for at in range(min(count, len(self._queue)))]
            batches = [each for each in group if each is not None]
            if None in group:
                batches = [each for each in group[: group.index(None)] if each is not None]
            try:
                if self._aborts is not None:
                    await call(self._world, self._abort)
                elif batches:
                    await call(self._world, functools.partial(self._send, batches=batches))
                else:
                    await call(self._world, self._end)
            except TopicNotFound:
                await self._create()
            except KafkaError as error:
                self._world.note(f"producer {self.number} is refused: {error!r:.110}")
                self._give_up()
            except LedgerfoldError as error:
                self._world.note(f"producer {self.number}: {error!r:.110}")
                if self.is_plain:
                    self._doubt(sent for _, each in batches for sent in each)
                    self._drop(len(batches))
                await asyncio.sleep(_RETRY_S)

    def _drop(self, count: int) -> None:
        for _ in range(min(count, len(self._queue))):
            self._queue.popleft()

    def _doubt(self, sent: Iterable[Sent]) -> None:
        life = self._world.oracle.kafka.get(self._topic)
        for each in sent:
            if life is not None:
                life.doubtful.add(each.key)

    def _give_up(self) -> None:
        """Another life of the topic does not know it; or it is a zombie."""
        self.is_over, self._aborts = True, None
        for each in self._queue:
            if each is not None:
                self._doubt(each[1])
        self._queue.clear()

    async def _create(self) -> None:
        try:
            await call(self._world, lambda broker: broker.create_topic(self._topic, CONFIG))
        except TopicExists:
            pass
        except LedgerfoldError as error:
            self._world.note(f"create: {error!r:.110}")
            await asyncio.sleep(_RETRY_S)

    def _enter(self) -> KafkaLife:
        life = self._world.oracle.kafka.get(self._topic)
        if life is None:
            # A restore has just deleted it.
            raise TopicNotFound(self._topic)
        if self._life is None:
            self._life, self._cuts = life, life.cuts
        self._check_life()
        return life

    def _is_another_life(self) -> bool:
        life = self._world.oracle.kafka.get(self._topic)
        return life is not self._life or life is None or life.cuts != self._cuts

    def _check_life(self) -> None:
        """Checks that the sender of truncated records sends no more."""
        if self._is_another_life():
            raise KafkaError(KafkaErrorKind.UNKNOWN_PRODUCER_ID, "another life")

    async def _send(self, broker: Broker, batches: list[tuple[bytes, list[Sent]]]) -> None:
        topic = await broker.kafka_topic(self._topic, to_write=True)
        life = self._enter()
        for _, sent in batches:
            for each in sent:
                if each.transaction is not None and each.transaction not in life.transactions:
                    life.transactions.append(each.transaction)
        data = b"".join(batch for batch, _ in batches)
        fence = life.fence_of(self.number)
        life.in_flight_bytes += len(data)
        try:
            appended = await topic.append_batches(data, Origin.CLIENT)
        finally:
            life.in_flight_bytes -= len(data)
        self._check_life()
        if not self.is_plain:
            if self.epoch < fence:
                life.fail(f"{batches[0][1][0].id} is taken, and epoch {fence} was known before")
            life.fenced(self.number, self.epoch, appended[-1].last_offset)
        self._world.moments.reach(RECEIPT)
        for (_, sent), place in zip(batches, appended, strict=True):
            if place.last_offset - place.first_offset + 1 != len(sent):
                self._world.oracle.fail(f"{sent[0].id} is told of another number of records")
            for row, record in enumerate(sent):
                life.told(place.first_offset + row, record, place.last_offset)
        if not (self.is_plain or self.is_transactional):
            for (batch, sent), place in zip(batches, appended, strict=True):
                self._done.append((batch, sent, place.first_offset))
        ids = ", ".join(sent[0].id for _, sent in batches)
        self._world.note(f"{ids} acknowledged at {[place.first_offset for place in appended]}")
        self._drop(len(batches))

    async def _end(self, broker: Broker) -> None:
        topic = await broker.kafka_topic(self._topic, to_write=True)
        life = self._enter()
        transaction = next(each for each in life.transactions if self._is_to_end(each))
        await self._end_one(topic, life, transaction)
        self._drop(1)

    async def _abort(self, broker: Broker) -> None:
        """The marker has the new epoch: from then on the broker knows it."""
        topic = await broker.kafka_topic(self._topic, to_write=True)
        life, transaction = self._enter(), self._aborts
        if transaction is not None:
            await self._end_one(topic, life, transaction)
        self._aborts = None

    async def _end_one(self, topic: KafkaTopic, life: KafkaLife, transaction: Transaction) -> None:
        transaction.is_asked = True
        fence = life.fence_of(self.number)
        life.in_flight_bytes += _MARKER_BYTES
        try:
            appended = await topic.end_transaction(
                self.number,
                self.epoch,
                commit=transaction.outcome == "commit",
                timestamp_ms=self._world.clock.now_ms(),
            )
        finally:
            life.in_flight_bytes -= _MARKER_BYTES
        self._check_life()
        if self.epoch < fence:
            life.fail(f"a marker of {self.label} is taken, and epoch {fence} was known before")
        life.fenced(self.number, self.epoch, appended.last_offset)
        transaction.is_ended = True
        self._world.note(f"producer {self.label}: {transaction.outcome} at {topic.log.end_offset}")

    def _is_to_end(self, transaction: Transaction) -> bool:
        """Returns the oldest transaction of its own that has not ended."""
        own = {
            id(each.transaction)
            for name, each in self._world.oracle.kafka_sent.items()
            if name.startswith(f"{self.label}#")
        }
        return id(transaction) in own and bool(transaction.outcome) and not transaction.is_ended


async def read_once(
    world: World, topic: str, start: int | None, *, committed: bool, pauses: Random
) -> str:
    """Reads once from that offset, or the log's start, to the end. Returns how it ended: "" is
    success.
    """
    found: list[int] = []

    async def read(broker: Broker) -> None:
        loaded = await broker.kafka_topic(topic)
        life = world.oracle.kafka.get(topic)
        if life is None:
            raise TopicNotFound(topic)
        began = life, life.cuts
        checkpoint = loaded.partition.checkpoint or 0
        position = StartPosition(earliest=True)
        if start is not None:
            position = StartPosition(message_id=MessageId(entry_id=start), inclusive=True)
        reader = None
        try:
            reader = await loaded.open_reader(position, KafkaReaderOptions(committed))
            await _read_on(world, life, reader, found, pauses)
            if _is_the_same(world, began):
                life.check_clean(found, checkpoint)
        except KafkaError:
            at = start if reader is None else reader.offset
            if _is_the_same(world, began):
                life.refused(at, is_given=reader is not None)
            raise
        finally:
            if reader is not None:
                reader.detach()

    try:
        await call(world, read)
    except (MissingFile, Corruption) as error:
        world.oracle.fail(f"a reader of {topic} ends with {error!r}")
    except LedgerfoldError as error:
        return f"{error!r:.110}"
    return ""


def _is_the_same(world: World, began: tuple[KafkaLife, int]) -> bool:
    """Neither deleted nor truncated since."""
    life, cuts = began
    return world.oracle.kafka.get(life.name) is life and life.cuts == cuts


async def _read_on(
    world: World, life: KafkaLife, reader: KafkaReader, found: list[int], pauses: Random
) -> None:
    first, committed = reader.first_offset, reader.read_committed
    began = life, life.cuts
    while True:
        promised = life.promised(committed=committed)
        reader.check(1)
        for step in await reader.take() or []:
            if life.cuts != began[1]:
                return
            if isinstance(step, Entries):
                for entry in step.entries:
                    body = entry.data[read_header(entry.data).header_bytes :]
                    _take(world, life, body, first, found, committed=committed)
            elif isinstance(step, Checked) and not step.has_more:
                if _is_the_same(world, began):
                    life.check(first, found, promised, committed)
                return
        for _ in range(pauses.choice((0, 0, 1, 5, 20))):
            await asyncio.sleep(0)


def _take(
    world: World, life: KafkaLife, batch: bytes, first: int, found: list[int], *, committed: bool
) -> None:
    oracle = world.oracle
    for record in records_of(batch):
        if record.offset < first:
            continue
        if found and record.offset <= found[-1]:
            oracle.fail(f"offset {record.offset} comes behind {found[-1]}")
        found.append(record.offset)
        id = dict(record.headers)["id"]
        sent = oracle.kafka_sent.get((id or b"").decode())
        if sent is None or (sent.key, sent.is_tombstone) != (record.key, record.value is None):
            oracle.fail(f"offset {record.offset} holds {id!r}, which nobody has sent so")
            return
        life.told(record.offset, sent, read_batch_header(batch).last_offset)
        if committed:
            life.read_committed(record.offset, sent)
