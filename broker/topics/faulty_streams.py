"""Producers and readers on a broker that allows faults: rules act on their messages.

They delay a reader's messages, fail the reader or disconnect it. For a producer:

* An entry that fails is not stored: its receipt has the error, as that of any refused entry.
* An entry that disconnects the producer is not stored. Earlier entries are stored, and get their
  receipts first. Later entries are dropped. The client sends them again.
* One whose receipt is lost is stored. Then the producer is disconnected in the same way, and its
  client sends the entry again; or it stays connected, and gets later receipts only.
* A delay of a receipt begins when the entry arrives, so that the delays of several entries overlap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ledgerfold.broker.faults.faults import Effect, Faults, served
from ledgerfold.broker.faults.rules import Subject
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.reader import Reader
from ledgerfold.broker.topics.receipts import Receipt
from ledgerfold.broker.topics.stream_reader import Entries, Step
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1.admin_pb2 import FAULT_OPERATION_PUBLISH


class _Marked(NamedTuple):
    """A receipt that rules have hit, and the time at which its entry arrived, by the loop."""

    receipt: Receipt
    effect: Effect
    since_s: float


class FaultyProducer(Producer):
    """A Producer, with the options of one."""

    def __init__(self, faults: Faults, topic: LoadedTopic, *values: Any, **options: Any) -> None:
        super().__init__(topic, *values, **options)
        self._faults, self._subject = faults, Subject(topic.name, producer=self.name)
        # What add() does to receipts of the entry that is being appended, if rules apply to it.
        self._effect: Effect | None = None
        # The marks of receipts, in their order; then the receipts that were taken from the queue
        # and not yet returned.
        self._marked: deque[_Marked] = deque()
        self._delayed: deque[Receipt] = deque()
        # A receipt ahead disconnects it: what arrives is dropped.
        self._is_cut = False
        # Set when it ends: it does not wait for a delay then.
        self._ending = asyncio.Event()

    def end(self, error: LedgerfoldError) -> None:
        super().end(error)
        self._ending.set()

    # Entries

    def append_all(self, entries: Iterable[Buffer], *, is_new: bool = False) -> None:
        if self._is_cut:
            # Also after the rules were removed: the client resends the dropped entries.
            self.check()
            return
        if self._faults.is_empty:
            super().append_all(entries, is_new=is_new)
            return
        self.check()
        plain = list[Buffer]()
        try:
            for entry in entries:
                header = check_entry(entry, self._entry_bytes_max)
                effect = self._faults.effect(
                    FAULT_OPERATION_PUBLISH, self._subject, header.message_count
                )
                if effect is None:
                    plain.append(entry)
                    continue
                before, plain = plain, []
                super().append_all(before, is_new=is_new)
                self._effect = effect
                if effect.error is not None:
                    self.refuse(header.sequence_id, header.size_bytes, effect.error)
                elif effect.disconnection is not None:
                    self.refuse(header.sequence_id, header.size_bytes, effect.disconnection)
                else:
                    super().append_all([entry], is_new=is_new)
                self._effect = None
                self._is_cut = effect.cut is not None
                if self._is_cut:
                    return
        finally:
            self._effect = None
            if plain:
                super().append_all(plain, is_new=is_new)

    def add(self, receipt: Receipt, *, is_new: bool = True) -> None:
        if self._effect is not None:
            since_s = asyncio.get_running_loop().time()
            self._marked.append(_Marked(receipt, self._effect, since_s))
        super().add(receipt, is_new=is_new)

    # Receipts

    async def receipts(self) -> list[Receipt]:
        while True:
            if not self._delayed:
                taken = await super().receipts()
                if not (taken and self._marked):
                    return taken
                self._delayed.extend(taken)
            if ready := self._take_unmarked():
                return ready
            receipt, effect, since_s = self._marked[0]
            await self._faults.delay(effect.delays, since_s=since_s, interrupted=self._ending)
            self.check()
            self._marked.popleft()
            self._delayed.popleft()
            if effect.cut is not None:
                self.end(effect.cut)
                raise effect.cut
            if effect.loss is None or receipt.refusal is not None:
                return [receipt]

    def _take_unmarked(self) -> list[Receipt]:
        taken = list[Receipt]()
        while self._delayed and not (self._marked and self._delayed[0] is self._marked[0].receipt):
            taken.append(self._delayed.popleft())
        return taken


def producer_kind(faults: Faults | None) -> Callable[..., Producer]:
    """Returns what creates producers on a broker with these faults."""
    return Producer if faults is None else partial(FaultyProducer, faults)


class FaultyReader(Reader):
    """A Reader, with the options of one."""

    def __init__(self, faults: Faults, topic: LoadedTopic, *values: Any) -> None:
        super().__init__(topic, *values)
        self._faults = faults
        self._subject = Subject(topic.name, subscription=self.subscription, consumer=self.name)
        # Set when it ends: it does not wait for a delay then.
        self._ending = asyncio.Event()

    def end(self, error: LedgerfoldError) -> None:
        super().end(error)
        self._ending.set()

    def wake(self) -> None:
        super().wake()
        # Not at the termination of the topic: the reader reads the rest.
        if self._state.closed is not None:
            self._ending.set()

    def finish(self) -> None:
        super().finish()
        self._ending.set()

    async def _next_steps(self) -> list[Step]:
        steps = await super()._next_steps()
        for number, step in enumerate(steps):
            if not isinstance(step, Entries):
                continue
            counts = (entry.header.message_count for entry in step.entries)
            met = served(self._faults, self._subject, counts)
            await self._faults.delay(met.delays, interrupted=self._ending)
            if met.error is not None:
                self.end(met.error)
                served_entries = step.entries[: met.served_count]
                return [*steps[:number], *([Entries(served_entries)] if served_entries else [])]
        return steps


def reader_kind(faults: Faults | None) -> Callable[..., Reader]:
    """Returns what creates readers on a broker with these faults."""
    return Reader if faults is None else partial(FaultyReader, faults)
