"""The delivery pump: one task that reads a subscription's log and pushes entries to its consumers.

While a consumer has permits and room, and the broker has room, it reads (about as much as the
permits allow, READ_BYTES_MAX at most), asks the dispatcher for assignments, and pushes. It awaits
only reads and wake-ups; entries read during a rewind are dropped and read again.

A pump lives from the first consumer's connection to the last one's disconnection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledgerfold.broker.common.clock import Clock, Timer
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.reads import ReadResult
from ledgerfold.broker.log.view import RAW
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.consumer import Consumer, Delivery
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.dispatcher import (
    Candidate,
    ConsumerState,
    Dispatcher,
    UnackedLimits,
    budget_of,
)
from ledgerfold.broker.subscriptions.reading import Reading
from ledgerfold.storage.codec import routing_of
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import IncompatibleFormat, InvalidRequest
from ledgerfold.storage.ledger import StoredEntry

READ_BYTES_MAX = 1024 * 1024
# Estimated size of a message before one was read.
_MESSAGE_BYTES_FIRST = 1024
# The clock is read again after this time.
_ALARM_MS_MAX = 60_000
# Later than all times.
_NEVER_MS = 2**64


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """The policies of a topic that concern its deliveries.

    `delays`: whether messages may be delayed. `failover_delay_ms`: the pause before a newly active
    consumer of a Failover subscription is served. `unacked_limits`: those of the shared types.
    """

    delays: Callable[[], bool] = lambda: True
    failover_delay_ms: int = 0
    unacked_limits: Callable[[], UnackedLimits] = UnackedLimits


ANY_DELIVERY = DeliveryRules()


@dataclass(frozen=True, slots=True)
class Source:
    """The log and cursor of a subscription, and the objects with which its sessions deliver.

    `topic`: its name. `on_passed`: the cursor moved by reading alone. `on_error` gets the
    error that ended a pump; nothing is pushed afterwards.
    """

    topic: str
    log: TopicLog
    cursor: Cursor
    is_durable: bool
    emulation: Callable[[], Emulation]
    clock: Clock
    rules: DeliveryRules
    outgoing: Outgoing
    on_passed: Callable[[], None]
    on_error: Callable[[Exception], None]


class Pump:
    """The read loop of one session. `looks_inside`: candidates carry their key's slot, and may be
    delayed.
    """

    def __init__(self, source: Source, dispatcher: Dispatcher, *, looks_inside: bool) -> None:
        self._log, self._cursor, self._dispatcher = source.log, source.cursor, dispatcher
        self._is_durable, self._looks_inside = source.is_durable, looks_inside
        self._on_passed, self._on_error = source.on_passed, source.on_error
        self._share = source.outgoing.share()
        self._consumers: dict[int, Consumer] = {}
        self._emulation = source.emulation
        self._reading = self._begin(read_compacted=False)
        self._wake = asyncio.Event()
        self._bytes_per_message = float(_MESSAGE_BYTES_FIRST)
        self._task: asyncio.Task[None] | None = None
        self._clock, self._delays = source.clock, source.rules.delays
        self._unacked_limits = source.rules.unacked_limits
        # The timer for the next delayed entry, and its time.
        self._alarm: Timer | None = None
        self._alarm_ms: int | None = None

    @property
    def read_position(self) -> Position:
        return self._reading.position

    @property
    def held_position(self) -> Position | None:
        """The first raw entry that it needs although a run has overtaken it."""
        reading = self._reading
        return reading.route.held_position(reading.position, self._log.views.horizon)

    def add(self, consumer: Consumer) -> None:
        self._consumers[consumer.state.number] = consumer

    def remove(self, consumer: Consumer) -> None:
        del self._consumers[consumer.state.number]

    def consumer_of(self, state: ConsumerState | None) -> Consumer | None:
        return None if state is None else self._consumers.get(state.number)

    def rewind(self, *, read_compacted: bool) -> None:
        """Restarts reading at the cursor."""
        self._reading.route.close()
        self._reading = self._begin(read_compacted=read_compacted)
        self.wake()

    def _begin(self, *, read_compacted: bool) -> Reading:
        return Reading(
            self._cursor,
            self._log,
            self._emulation(),
            read_compacted=read_compacted,
            durable=self._is_durable,
        )

    def wake(self) -> None:
        """Reports a change: permits, room, the replay queue, an acknowledgement."""
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._reading.route.close()
        self._share.close()
        self._cancel_alarm()
        self._dispatcher.close()
        if self._task is not None:
            self._task.cancel()

    async def stopped(self) -> None:
        if self._task is not None:
            await asyncio.wait((self._task,))

    # Internals

    async def _run(self) -> None:
        try:
            while True:
                await self._step()
        except Exception as error:
            # On any error: consumers must not wait for entries that never arrive.
            self._on_error(error)

    async def _step(self) -> None:
        self._wake.clear()
        reading = self._reading
        positions = self._replayable()
        if not (positions or self._dispatcher.budget().messages):
            await self._wake.wait()
            return
        if not await self._share.reserve_or(READ_BYTES_MAX, self._wake):
            return
        try:
            if positions:
                await self._replay(positions)
                return
            has_more = await self._read_on(reading)
        finally:
            # Pushed entries count to the consumers' shares.
            self._share.hold(0)
        if not has_more:
            await self._wait_for_data(reading)

    async def _read_on(self, reading: Reading) -> bool:
        """Reads and dispatches. Returns False if there are no more entries now."""
        reading.catch_up()
        position = reading.position
        result, view = await reading.route.read(position, self._log, bytes_max=self._bytes_max())
        if reading is not self._reading:
            return True
        mark_delete = self._cursor.mark_delete
        entries = reading.filter_entries(result.entries, view.horizon)
        decision = self._dispatcher.assign(self._candidates(entries))
        for at, state, redeliveries in decision.assignments:
            self._push(state, entries[at], redeliveries)
        if decision.candidate_count < len(entries):
            reading.stop_before(result.entries, entries[decision.candidate_count].header.position)
        else:
            reading.finish(result, view.horizon)
        reading.route.delivered(view, len(result.entries), reading.position)
        if self._cursor.mark_delete != mark_delete:
            self._on_passed()
        return bool(result.entries) or reading.position != position

    async def _replay(self, positions: list[Position]) -> None:
        """Reads and dispatches again, one run of consecutive ids at a time."""
        start = 0
        while start < len(positions):
            end = start + 1
            while end < len(positions) and positions[end] == positions[end - 1].next:
                end += 1
            run = positions[start:end]
            result = await self._log.reads.read(
                run[0],
                view=RAW,
                bytes_max=1 if len(run) == 1 else self._bytes_max(replay=True),
            )
            start += self._replay_run(run, result)

    def _replay_run(self, run: list[Position], result: ReadResult) -> int:
        """Dispatches the entries of one read; returns how many positions of the run are done."""
        entries = [each for each in result.entries if run[0] <= each.header.position <= run[-1]]
        reached = entries[-1].header.position if entries else run[-1]
        done = [each for each in run if each <= reached]
        for position in set(done) - {entry.header.position for entry in entries}:
            # No longer in the log: no consumer can acknowledge it.
            self._dispatcher.settle(None, position)
            self._cursor.acknowledge(position)
        candidates = self._candidates(entries, may_wait=False)
        for at, state, redeliveries in self._dispatcher.assign_replayed(candidates):
            self._push(state, entries[at], redeliveries)
        return len(done)

    async def _wait_for_data(self, reading: Reading) -> None:
        data = asyncio.ensure_future(self._log.reads.wait_beyond(reading.position))
        try:
            while True:
                self._wake.clear()
                if data.done():
                    data.result()
                    return
                if reading is not self._reading or self._replayable():
                    return
                signal = asyncio.ensure_future(self._wake.wait())
                try:
                    await asyncio.wait((data, signal), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    signal.cancel()
        finally:
            data.cancel()

    # Delayed entries

    def _replayable(self) -> list[Position]:
        """Returns what can be replayed. Applies limits, and releases entries that are due."""
        dispatcher = self._dispatcher
        if self._looks_inside:
            dispatcher.limit(self._unacked_limits())
        if dispatcher.next_due_ms is not None or self._alarm_ms is not None:
            now_ms = self._clock.now_ms()
            if dispatcher.release(now_ms, self._cursor.is_acknowledged):
                # This runs after other tasks.
                asyncio.get_running_loop().call_soon(self.wake)
            self._set_alarm(now_ms)
        return dispatcher.replay_positions()

    def _set_alarm(self, now_ms: int) -> None:
        due_ms = self._dispatcher.next_due_ms
        if due_ms is not None and due_ms <= now_ms:
            # It waits for room in the replay queue, which wakes the pump.
            due_ms = None
        if due_ms == self._alarm_ms:
            return
        self._cancel_alarm()
        if due_ms is not None:
            # At most this long after the clock's time, because the clock may be set.
            delay_ms = min(due_ms - now_ms, _ALARM_MS_MAX)
            self._alarm = self._clock.call_later(delay_ms / 1000, self._ring)
            self._alarm_ms = due_ms

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._alarm_ms = None

    def _ring(self) -> None:
        self._alarm = self._alarm_ms = None
        self.wake()

    def _push(self, state: ConsumerState, entry: StoredEntry, redeliveries: int) -> None:
        header = entry.header
        self._consumers[state.number].push(
            Delivery(header.position, header.message_count, entry.data, redeliveries)
        )

    def _bytes_max(self, *, replay: bool = False) -> int:
        """Returns an estimate of what the permits allow."""
        dispatcher = self._dispatcher
        messages, room_bytes = budget_of(dispatcher.consumers) if replay else dispatcher.budget()
        estimate = int(messages * self._bytes_per_message) + 1
        return max(1, min(self._share.size_bytes, room_bytes, estimate))

    def _candidates(
        self, entries: Sequence[StoredEntry], *, may_wait: bool = True
    ) -> list[Candidate]:
        """Returns the candidates of one read. `may_wait`: they may be delayed."""
        candidates, due_ms = list(map(self._candidate, entries)), None
        for index, each in enumerate(candidates):
            if each.deliver_at_ms:
                if due_ms is None:
                    # Once: merging the policies of all levels takes time.
                    due_ms = self._clock.now_ms() if may_wait and self._delays() else _NEVER_MS
                if each.deliver_at_ms <= due_ms:
                    candidates[index] = each._replace(deliver_at_ms=0)
        return candidates

    def _candidate(self, entry: StoredEntry) -> Candidate:
        header, size_bytes = entry.header, len(entry.data)
        self._bytes_per_message += (
            size_bytes / header.message_count - self._bytes_per_message
        ) / 16
        if not self._looks_inside:
            return Candidate(header.position, header.message_count, size_bytes)
        key, deliver_at_ms = routing(entry)
        slot = self._dispatcher.slot_of(key)
        return Candidate(header.position, header.message_count, size_bytes, slot, deliver_at_ms)


def routing(entry: StoredEntry) -> tuple[bytes, int]:
    """Returns the key of an entry for Key_Shared, and the time before which it is not delivered.

    As in Pulsar, entries without a key are spread over all consumers. Keys that do not parse count
    as none: consumers find the damage.
    """
    header = entry.header
    try:
        key, deliver_at_ms = routing_of(entry.data, header)
    except (IncompatibleFormat, InvalidRequest):
        key, deliver_at_ms = None, 0
    if key is None:
        key = f"{header.producer_number}-{header.sequence_id}".encode()
    return key, deliver_at_ms
