"""A subscription: a cursor on a topic's log, and the consumers that share it.

The pump reads and pushes entries (delivery.py), the dispatcher assigns them (dispatcher.py), and
the recorded cursor is made durable (recorded_cursor.py). All run on one event loop.

Rules, as in Pulsar:

* One type at a time: it is set by the first consumer and reset with the last one.
* An Exclusive subscription refuses a second consumer (SubscriptionBusy).
* Read-compacted consumers need Exclusive or Failover (NotAllowed otherwise). Reading the compacted
  view is a property of the consumer, not of the subscription.
* The next consumer gets the entries that the last one left unacknowledged (reading.py).
* A seek disconnects all consumers with Moved and moves the cursor durably; then they may reconnect.
* A non-durable subscription is removed with its last consumer, unless a seek disconnected that
  consumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from ledgerfold.broker.common.clock import Clock, WallClock
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.traffic import Traffic
from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.cursor_writer import DELAY_MS, Persist
from ledgerfold.broker.subscriptions.delivery import ANY_DELIVERY, DeliveryRules, Source
from ledgerfold.broker.subscriptions.dispatcher import Dispatcher, SubscriptionType
from ledgerfold.broker.subscriptions.recorded_cursor import RecordedCursor
from ledgerfold.broker.subscriptions.session import Session, why_busy
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    InvalidRequest,
    LedgerfoldError,
    Moved,
    NotAllowed,
    SubscriptionBusy,
)
from ledgerfold.v1.records_pb2 import CursorRecord

_log = logging.getLogger(__name__)


class Subscription:
    """A subscription created by broker/subscriptions/lifecycle.py. `persist` None: not durable."""

    def __init__(
        self,
        topic: str,
        name: str,
        log: TopicLog,
        cursor: Cursor,
        persist: Persist | None,
        *,
        emulation: Callable[[], Emulation] = Emulation,
        created_ms: int = 0,
        persist_delay_ms: int = DELAY_MS,
        clock: Clock | None = None,
        outgoing: Outgoing | None = None,
        consumers: Callable[..., Consumer] = Consumer,
        rules: DeliveryRules = ANY_DELIVERY,
    ) -> None:
        self._consumer_kind, self.created_ms = consumers, created_ms
        self.topic, self.name, self.log, self.cursor = topic, name, log, cursor
        self.recorded = RecordedCursor(
            cursor, self._to_record, persist, self.fail, delay_ms=persist_delay_ms, clock=clock
        )
        self._source = Source(
            topic,
            log,
            cursor,
            is_durable=persist is not None,
            emulation=emulation,
            clock=clock or WallClock(),
            rules=rules,
            outgoing=outgoing or Outgoing(),
            on_passed=self.recorded.changed,
            on_error=self.fail,
        )
        # The setting of the last consumer that connected; a seek by time searches its view.
        self.read_compacted = False
        # By message TTL or by request: the number of entries and the time of the last attempt.
        self.entries_expired = self.expired_ms = 0
        # The total of disconnected consumers.
        self.traffic_before = Traffic()
        self._session: Session | None = None
        self._closed: LedgerfoldError | None = None
        self._is_moving = False
        self._passing = asyncio.Lock()
        # Not durable, but kept: a seek disconnected its consumers, which will reconnect.
        self.is_kept = False
        self._last_number = 0
        # The type of the last session.
        self.last_type: SubscriptionType | None = None

    # State

    @property
    def is_durable(self) -> bool:
        return self.recorded.is_durable

    @property
    def type(self) -> SubscriptionType | None:
        """The current type; None while no consumer is connected."""
        return None if self._session is None else self._session.type

    @property
    def consumers(self) -> list[Consumer]:
        return [] if self._session is None else self._session.consumers

    @property
    def active_consumer(self) -> Consumer | None:
        return None if self._session is None else self._session.active

    @property
    def mark_delete(self) -> Position:
        """The position through which everything is acknowledged, perhaps not yet durably."""
        return self.cursor.mark_delete

    @property
    def durable_mark_delete(self) -> Position:
        """The position through which everything is durably acknowledged: trimming may delete it.
        Never above `mark_delete`.
        """
        return self.recorded.durable_mark_delete

    @property
    def read_position(self) -> Position:
        """The next position to read."""
        session = self._session
        return self.cursor.mark_delete.next if session is None else session.pump.read_position

    @property
    def incarnation(self) -> int:
        """A number that changes with each seek, and when it is created again."""
        return self.cursor.incarnation

    @property
    def held_position(self) -> Position | None:
        """The first raw entry that trimming must keep for it although a run has overtaken it."""
        return None if self._session is None else self._session.pump.held_position

    @property
    def is_closed(self) -> bool:
        """Returns whether it is being deleted or its topic was unloaded: its cursor is final."""
        return self._closed is not None

    @property
    def is_abandoned(self) -> bool:
        """Returns whether it is non-durable and unused, and so to be removed from its topic."""
        return not (self.is_durable or self._session or self.is_kept or self._is_moving)

    def backlog_entries(self, sums: LedgerSums | None = None) -> int:
        """Counts unacknowledged raw entries after the mark-delete.

        `sums`: those of its log, now.
        """
        sums = sums or self.log.ledgers.sums()
        entries = sums.entries_between(self.cursor.mark_delete, self.log.positions.last())
        return entries - sums.entries_in(self.cursor.bounds())

    @property
    def dispatcher(self) -> Dispatcher | None:
        """The dispatcher of the connected consumers; None if there are none."""
        return None if self._session is None else self._session.dispatcher

    # Consumers

    def attach(self, options: ConsumerOptions) -> Consumer:
        """Connects a consumer without permits.

        Raises NotAllowed, SubscriptionBusy, InvalidHashRanges, or the error that the subscription
        was closed with.
        """
        self._check_attach(options)
        session = self._session
        if session is None:
            session = self._session = Session(
                options.type, self._source, options.key_shared, self._consumer_kind
            )
            session.pump.start()
            self.last_type = options.type
        self._last_number += 1
        self.read_compacted, self.is_kept = options.read_compacted, False
        state = options.state(self._last_number)
        return session.connect(state, read_compacted=options.read_compacted)

    def detach(self, consumer: Consumer) -> None:
        """Disconnects the consumer; others get its unacknowledged entries. Idempotent."""
        session = self._session_of(consumer)
        if session is None:
            return
        session.remove(consumer)
        consumer.end(None)
        self.traffic_before = self.traffic_before.plus(consumer.traffic)
        if session.consumers:
            session.pump.wake()
        else:
            session.stop()
            self._session = None

    def add_permits(self, consumer: Consumer, messages: int) -> None:
        session = self._session_of(consumer)
        if session is not None:
            consumer.state.permits += messages
            session.pump.wake()

    def acknowledge(
        self,
        consumer: Consumer,
        positions: Sequence[Position],
        *,
        cumulative: bool = False,
        request_id: int = 0,
    ) -> None:
        """Acknowledges whole entries. `request_id` not 0: the consumer gets an answer once durable.

        Positions beyond the end of the log are ignored. Raises InvalidRequest.
        """
        session = self._session_of(consumer)
        if session is None:
            return
        end = self.log.positions.last()
        if cumulative:
            self._check_cumulative(session, positions)
            changes = int(positions[0] <= end and self.cursor.acknowledge_cumulative(positions[0]))
        else:
            known = [each for each in positions if each <= end and each.entry_id >= 0]
            for position in known:
                session.dispatcher.settle(consumer.state, position)
            changes = sum(map(self.cursor.acknowledge, known))
        if changes:
            self.recorded.changed(changes)
        if request_id:
            self.recorded.when_durable(lambda: consumer.answer_ack(request_id))
        session.pump.wake()

    def redeliver(self, consumer: Consumer, positions: Collection[Position]) -> None:
        """Redelivers unacknowledged entries of `consumer`: `positions`, or all.

        Exclusive and Failover always redeliver all of them, in order.
        """
        session = self._session_of(consumer)
        if session is not None:
            session.redeliver(consumer, set(positions))
            session.pump.wake()

    # The whole subscription

    def wake(self) -> None:
        """Dispatches what changed policies allow."""
        if self._session is not None:
            self._session.pump.wake()

    def pass_over(self, through: Position) -> int:
        """Acknowledges everything up to `through` for all consumers.

        Returns how many entries left the backlog; 0 if it is closed.
        """
        if self.is_closed:
            return 0
        before = self.backlog_entries()
        if not self.cursor.acknowledge_cumulative(through):
            return 0
        if self._session is not None:
            self._session.dispatcher.pass_over(self.mark_delete)
            self._session.pump.wake()
        self.recorded.changed()
        return before - self.backlog_entries()

    async def pass_over_durably(self, find: Callable[[], Position]) -> int:
        """Passes over what `find` returns, once that is durable; otherwise as pass_over().

        Raises StorageError, or the closing error: then it has passed nothing.
        """
        async with self._passing:
            self._check_open()
            incarnation, through = self.incarnation, find()
            if through <= self.mark_delete:
                return 0
            if not await self.recorded.pass_over(through):
                self._check_open()
            # A seek during the write is later.
            return self.pass_over(through) if self.incarnation == incarnation else 0

    async def persist(self) -> None:
        """Returns when the current cursor is durable. Raises StorageError, or the closing error."""
        self._check_open()
        if not await self.recorded.persist():
            self._check_open()

    async def move(self, mark_delete: Position) -> None:
        """Seeks: the next entry delivered is the first after `mark_delete` (EARLIEST: all).

        Disconnects every consumer with Moved; they are refused until the cursor has moved durably.
        Raises SubscriptionBusy during another move, StorageError, or the closing error: then the
        cursor has not moved.
        """
        if self._is_moving:
            raise SubscriptionBusy(self.topic, self.name, "it is being moved; try again.")
        self._is_moving = True
        try:
            await self._disconnect(
                Moved(f"Subscription {self.name!r} of {self.topic} moved: connect again.")
            )
            self._check_open()
            self.is_kept = not self.is_durable
            if not await self.recorded.reset(mark_delete):
                self._check_open()
        finally:
            self._is_moving = False

    async def close(
        self, error: LedgerfoldError | None = None, *, keep_cursor: bool = True
    ) -> None:
        """Ends all consumers with `error` (Moved if None) and makes the cursor durable.

        `keep_cursor` False: stops writing before a deletion. Raises StorageError.
        """
        self._closed = error or Moved(f"Topic {self.topic} was unloaded: connect again.")
        if not keep_cursor:
            await self.recorded.stop()
        await self._disconnect(self._closed)
        if keep_cursor:
            try:
                await self.recorded.flush()
            finally:
                await self.recorded.stop()

    def fail(self, error: Exception) -> None:
        """Ends all consumers with a read or persist error; they may reconnect."""
        if not isinstance(error, LedgerfoldError):
            _log.error("Subscription %s of %s failed", self.name, self.topic, exc_info=error)
            error = LedgerfoldError(f"Subscription {self.name!r} failed: {error!r}")
        self._end_all(error)

    # Internals

    def _to_record(self, cursor: Cursor) -> CursorRecord:
        return cursor.to_record(self.topic, self.name, self.created_ms)

    def _session_of(self, consumer: Consumer) -> Session | None:
        """Returns the consumer's session; None if it is disconnected."""
        session = self._session
        return session if session is not None and consumer in session.consumers else None

    def _end_all(self, error: LedgerfoldError) -> None:
        for consumer in list(self.consumers):
            consumer.end(error)
            self.detach(consumer)

    async def _disconnect(self, error: LedgerfoldError) -> None:
        session = self._session
        self._end_all(error)
        if session is not None:
            await session.pump.stopped()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def _check_attach(self, options: ConsumerOptions) -> None:
        options.check()
        self._check_open()
        if options.durable != self.is_durable:
            kind = "durable" if self.is_durable else "non-durable"
            raise NotAllowed(f"Subscription {self.name!r} of {self.topic} exists as {kind}.")
        if self._is_moving:
            raise SubscriptionBusy(self.topic, self.name, "it is being moved; try again.")
        if (session := self._session) is not None:
            if why := why_busy(session.type, session.key_shared, options):
                raise SubscriptionBusy(self.topic, self.name, why)
            session.dispatcher.check(options.key_shared.ranges)

    def _check_cumulative(self, session: Session, positions: Sequence[Position]) -> None:
        if not session.type.is_ordered:
            raise InvalidRequest(f"A {session.type} subscription cannot acknowledge cumulatively.")
        if (count := len(positions)) != 1:
            raise InvalidRequest(f"A cumulative acknowledgement has one position, not {count}.")
