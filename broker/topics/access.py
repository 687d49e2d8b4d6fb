"""Access modes of producers: who may publish to a topic, and the topic's epoch. As in Pulsar:

* **Shared**: any number of producers, refused with ProducerBusy if another producer has, or waits
  for, exclusive access.
* **Exclusive**: the only producer; refused if there is another one (ProducerFenced).
* **WaitForExclusive**: waits until it is the only one, in the order of arrival.
* **ExclusiveWithFencing**: ends all other producers, including those that wait (ProducerFenced).

Each new exclusive access raises the topic's epoch, which is durable before the producer is
connected. A producer that reconnects sends its epoch: if the topic has a later one, another
producer had access meanwhile, and the reconnecting producer is refused (ProducerFenced).

Source: Pulsar's AbstractTopic, PIP-68. Bound: each waiting producer is a stream of the broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum

from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.topics.receipts import ReceiptQueue
from ledgerfold.storage.errors import (
    InvalidRequest,
    LedgerfoldError,
    Moved,
    ProducerBusy,
    ProducerFenced,
)
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord

EPOCH_MAX = 2**62


class AccessMode(StrEnum):
    """The access modes, spelled as in Pulsar's stats."""

    SHARED = "Shared"
    EXCLUSIVE = "Exclusive"
    WAIT_FOR_EXCLUSIVE = "WaitForExclusive"
    EXCLUSIVE_WITH_FENCING = "ExclusiveWithFencing"


class Claim:
    """The access of one producer, from its request until it is disconnected.

    `epoch`: its epoch before its connection was lost. `on_queued` is called if it has to wait.
    """

    def __init__(
        self,
        mode: AccessMode = AccessMode.SHARED,
        epoch: int | None = None,
        on_queued: Callable[[], object] = lambda: None,
    ) -> None:
        if epoch is not None and not 0 <= epoch < EPOCH_MAX:
            raise InvalidRequest(f"The epoch {epoch} of a topic is not in 0 to 2^62 - 1.")
        self.mode, self.epoch, self.on_queued = mode, epoch, on_queued
        # Set when its wait ends, with or without an error.
        self._turn = asyncio.Event()
        self._error: LedgerfoldError | None = None

    async def wait(self) -> None:
        """Returns when it is this producer's turn. Raises the error of give_up()."""
        self.on_queued()
        await self._turn.wait()
        # It may have given up after its turn had begun.
        self.check()

    def check(self) -> None:
        """Raises the error of give_up(), if it was called."""
        if self._error is not None:
            raise self._error

    def begin_turn(self) -> None:
        self._turn.set()

    def give_up(self, error: LedgerfoldError) -> None:
        """Ends the wait, or the request if it does not wait yet."""
        self._error = self._error or error
        self._turn.set()


def _epoch(record: TopicRecord) -> int | None:
    return record.topic_epoch if record.HasField("topic_epoch") else None


def next_epoch(epoch: int | None, claimed: int | None) -> int:
    """Returns the epoch after `epoch`; or the later of `epoch` and the producer's previous one.

    >>> next_epoch(None, None), next_epoch(3, None), next_epoch(3, 1), next_epoch(3, 5)
    (0, 4, 3, 5)
    """
    if claimed is not None:
        return max(epoch or 0, claimed)
    return 0 if epoch is None else epoch + 1


class ProducerAccess:
    """The access to one topic.

    `producers`: those that are connected. `stored`: has the epoch in its record; None: it is kept
    in memory.
    """

    def __init__(
        self, topic: str, producers: Mapping[str, ReceiptQueue], stored: StoredTopic | None = None
    ) -> None:
        self._topic, self._stored, self._unstored = topic, stored, TopicRecord()
        self._producers = producers
        self._holder: Claim | None = None
        self._waiting: deque[Claim] = deque()

    @property
    def epoch(self) -> int | None:
        """The topic's epoch; None if no producer ever had exclusive access."""
        return _epoch(self._unstored if self._stored is None else self._stored.record)

    @property
    def waiting(self) -> int:
        """The number of producers that wait for exclusive access."""
        return len(self._waiting)

    async def take(self, claim: Claim) -> None:
        """Returns when the producer has access; it is then connected, or released.

        Raises ProducerBusy, ProducerFenced, Moved, StorageError, the error of Claim.give_up().
        """
        claim.check()
        if claim.mode is AccessMode.SHARED:
            self.check(claim)
            return
        is_taken = self._holder is not None or bool(self._producers)
        if claim.mode is AccessMode.WAIT_FOR_EXCLUSIVE and (is_taken or self._waiting):
            self._waiting.append(claim)
            await claim.wait()
            self.check(claim)
        elif claim.mode is AccessMode.EXCLUSIVE and (is_taken or self._waiting):
            why = "other producers are connected, or wait for access."
            raise ProducerFenced(self._topic, why)
        self._check_epoch(claim)
        if claim.mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            self._fence_out()
        self._holder = claim
        await self._begin_epoch(claim.epoch)

    def check(self, claim: Claim) -> None:
        """Checks that the producer still has access. Raises ProducerBusy, ProducerFenced."""
        if claim.mode is not AccessMode.SHARED:
            if self._holder is not claim:
                raise ProducerFenced(self._topic, "another producer took exclusive access.")
        elif self._holder is not None or self._waiting:
            why = "a producer has, or waits for, exclusive access. Close that one first."
            raise ProducerBusy(self._topic, "", why)

    def release(self, claim: Claim) -> None:
        """Ends the access of a producer, or its wait: the next producer in line has its turn."""
        if claim in self._waiting:
            self._waiting.remove(claim)
        if self._holder is claim:
            self._holder = None
        if self._waiting and self._holder is None and not self._producers:
            # No other producer may come between.
            self._holder = self._waiting.popleft()
            self._holder.begin_turn()

    def close(self) -> None:
        """Ends all waits: the topic is unloaded."""
        self._give_up(Moved(f"{self._topic} was unloaded; connect again."))

    # Internals

    async def _begin_epoch(self, claimed: int | None) -> None:
        """Begins a new epoch, or continues a producer's previous epoch. Raises Moved, DiskFailure.

        It is as durable as the topic when this returns.
        """

        def edit(record: TopicRecord, batch: MetadataBatch | None) -> None:
            record.topic_epoch = next_epoch(_epoch(record), claimed)

        if self._stored is None:
            edit(self._unstored, None)
        else:
            await self._stored.change(edit)

    def _check_epoch(self, claim: Claim) -> None:
        if claim.epoch is not None and self.epoch is not None and claim.epoch < self.epoch:
            why = f"it has epoch {self.epoch}; this producer had epoch {claim.epoch}."
            raise ProducerFenced(self._topic, why)

    def _fence_out(self) -> None:
        error = ProducerFenced(self._topic, "another one took exclusive access.")
        self._give_up(error)
        # This precedes the end of the others, so that none of them gets access.
        self._holder = None
        for producer in tuple(self._producers.values()):
            producer.end(error)
            # They count as disconnected at once.
            producer.detach()

    def _give_up(self, error: LedgerfoldError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.give_up(error)
