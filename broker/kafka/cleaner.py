"""The cleaner: chooses a log, has it cleaned, deletes what retention lets go; again and again.

A *turn* is what one pass of a Kafka cleaner thread does (docs/KAFKA.md, "A turn"):

1. Choose the filthiest of the eligible logs (choice.py), or take the one that was asked for.
2. Clean it (round.py). Whatever changes the log under it aborts the round: an unload, a deletion,
   a policy without `compact`. A round that fails marks its log *uncleanable*, and the cleaner
   leaves it alone until the broker starts anew; one whose worker died only after _DEATHS_MAX.
3. Delete segments of every compacted log that is free (ledgerfold/kafka/retention.py).

As many threads take turns side by side as `log.cleaner.threads` says; one that found nothing waits
for `log.cleaner.backoff.ms`, on the broker's clock. Logs that are not compacted are the retention
thread's, each `log.retention.check.interval.ms`.

Source: LogCleaner, LogCleanerManager, LogManager.cleanupLogs of Kafka 4.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from ledgerfold.broker.ground.clock import Clock
from ledgerfold.broker.kafka.checkpoint_file import StoredCheckpoints, stored_checkpoints
from ledgerfold.broker.kafka.choice import Candidate, choose
from ledgerfold.broker.kafka.config import BrokerConfig
from ledgerfold.broker.kafka.defects import Defects
from ledgerfold.broker.kafka.deletion import Deletion
from ledgerfold.broker.kafka.gauges import Gauges
from ledgerfold.broker.kafka.pace import owed_ms, pace_of
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.kafka.round import RoundOutcome, Worker, clean, dry_run, view_of
from ledgerfold.broker.kafka.states import MARKED, Aborted, InProgress, States
from ledgerfold.broker.kafka.turn import Turn, kind_of
from ledgerfold.kafka.cleanable import Plan, plan
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactionFenced,
    CompactorUnavailable,
    LedgerfoldError,
    Moved,
)
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.compactor_pb2 import CleanManifest

_log = logging.getLogger(__name__)
# Those that did something, and are remembered.
_TURNS_KEPT = 20
# Rounds in a row in which the worker died, before their log is left alone: it may be the cause.
_DEATHS_MAX = 3


class CleanerBroker(Protocol):
    """What is needed of the broker (broker/topics/broker.py)."""

    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def kafka_config(self) -> BrokerConfig: ...
    def partitions_of_kafka(self) -> Mapping[str, Partition]:
        """The loaded ones, by the names of their topics."""
        ...


class Cleaner:
    """One per broker, on its event loop."""

    def __init__(
        self, broker: CleanerBroker, worker: Worker, defects: Callable[[str], Defects]
    ) -> None:
        """`defects`: those that are wanted of a topic; of the broker, by the name ""."""
        self._broker, self._worker, self.defects = broker, worker, defects
        self.states = States()
        self.gauges = Gauges(broker.clock.now_ms)
        self._deletion = Deletion(broker, self.states, self._wake)
        self._rounds: dict[str, asyncio.Task[RoundOutcome]] = {}
        # Of what turns did, the last: newest first.
        self.last_turns: deque[Turn] = deque(maxlen=_TURNS_KEPT)
        self._count = 0
        self._choosing = asyncio.Lock()
        # Of the worker, in rounds of a log, since the last one that was done.
        self._deaths: dict[str, int] = {}
        # A log left the state that it was in.
        self._changed = asyncio.Event()
        # All topics were loaded, and turns may be taken.
        self.has_started = False
        # As long as one is there, turns are taken.
        self._threads: list[asyncio.Task[None]] = []
        self._is_over = False

    # -- threads ---------------------------------------------------------------------------

    def start(self) -> None:
        """Takes turns by itself from now on, if the settings say so."""
        config, self.has_started = self._broker.kafka_config, True
        if config["log.cleaner.enable"]:
            for number in range(config.number("log.cleaner.threads")):
                self._threads.append(asyncio.create_task(self._take_turns(number)))
        self._threads.append(asyncio.create_task(self._retain()))

    async def stop(self) -> None:
        """For good: its gauges are gone, too. Rounds on their way end, and change nothing."""
        self._is_over = True
        await self._stop()

    async def _stop(self) -> None:
        threads, self._threads = self._threads, []
        rounds = list(self._rounds.values())
        for each in threads:
            each.cancel()
        for task in rounds:
            _cancel(task)
        if threads or rounds:
            await asyncio.wait({*threads, *rounds})

    async def restart(self) -> None:
        """The settings are others now: as Kafka does, all threads begin anew."""
        if self._threads:
            await self._stop()
            self.start()

    async def _take_turns(self, number: int) -> None:
        clock = self._broker.clock
        while True:
            try:
                turn = await self.turn()
                is_idle = turn.topic is None or turn.failure is not None
            except LedgerfoldError as error:
                _log.warning("Cleaner thread %d: %s", number, error)
                is_idle = True
            except Exception:
                _log.exception("Cleaner thread %d ended", number)
                self.gauges.dead_threads += 1
                return
            config = self._broker.kafka_config
            if is_idle:
                await clock.sleep(config.number("log.cleaner.backoff.ms") / 1000)
            elif turn.outcome is not None:
                stats = turn.outcome.manifest.stats
                size_bytes = stats.bytes_read + stats.bytes_written
                await clock.sleep(owed_ms(config, clock, size_bytes, turn.elapsed_ms) / 1000)

    async def _retain(self) -> None:
        while True:
            interval_ms = self._broker.kafka_config.number("log.retention.check.interval.ms")
            await self._broker.clock.sleep(interval_ms / 1000)
            try:
                await self.retain()
            except LedgerfoldError as error:
                _log.error("Retention: %s", error)
            except Exception:
                _log.exception("Retention")

    async def retain(self) -> int:
        """The retention thread's pass: over logs that are not compacted. How many segments went."""
        return await self._deletion.of_others()

    # -- a turn ----------------------------------------------------------------------------

    async def turn(self, topic: str | None = None) -> Turn:
        """`topic`: clean this one, however clean it is. Raises CompactorUnavailable, StorageError.

        A round that fails raises nothing: its turn tells.
        """
        began_ms = self._broker.clock.now_ms()
        # Another thread's turn would choose the same one, while a checkpoint is written.
        async with self._choosing:
            plans = await self._plans()
            choice = choose(plans)
            chosen = topic or choice.log
            made = plans[chosen].plan if chosen in plans else None
            if made is None or (topic is not None and not made.cleanable_bytes):
                # It is busy, left alone, or there is nothing that a round could do.
                chosen = None
            if chosen is not None and not self.states.begin(chosen):
                chosen = None
        self.gauges.chosen(choice, began_ms)
        outcome, was_aborted, failure = None, False, None
        if chosen is not None and made is not None:
            try:
                outcome = await self._clean(chosen, made)
            except (CompactionFenced, CompactionCancelled, Moved):
                was_aborted = True
            except CompactorUnavailable:
                # NOTE: no fault of the log's: it is tried again.
                raise
            except LedgerfoldError as error:
                partition = self._broker.partitions_of_kafka().get(chosen)
                if partition is None or partition.log.state.failure is not None:
                    # NOTE: nor is a failed log's: it is loaded anew.
                    was_aborted = True
                else:
                    failure = error
                    if not self._may_try_again(chosen, error):
                        await self._failed(partition, made, error)
            else:
                self._deaths.pop(chosen, None)
            finally:
                self._end(chosen)
        deleted = 0 if failure else await self._deletion.of_compacted()
        elapsed_ms = self._broker.clock.now_ms() - began_ms
        turn = Turn(
            chosen, choice, made, outcome, was_aborted, failure, deleted, elapsed_ms, began_ms
        )
        if turn.topic is not None or turn.deleted_segments:
            self.last_turns.appendleft(turn)
        self.gauges.ended(turn.outcome, elapsed_ms, self._broker.kafka_config.map_slots)
        return turn

    async def _plans(self) -> dict[str, Candidate]:
        """Of the compacted logs that are free. Writes checkpoints anew that cannot be right."""
        candidates = {}
        now_ms = self._broker.clock.now_ms()
        for name, partition in list(self._broker.partitions_of_kafka().items()):
            is_candidate = partition.config.is_compacted and self.states.is_free(name)
            has_failed = partition.log.state.failure is not None
            if not is_candidate or has_failed or self.is_uncleanable(name):
                continue
            made = plan_of(partition, now_ms)
            if made.must_repair:
                wrong = partition.checkpoint
                _log.warning("%s: checkpoint %s is not in the log; from its start on", name, wrong)
                try:
                    await partition.set_checkpoint(made.first_dirty_offset)
                except Moved:
                    continue
            candidates[name] = Candidate(made, partition.config.min_cleanable_ratio)
        return candidates

    async def _clean(self, name: str, made: Plan) -> RoundOutcome:
        self._count += 1
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        partition = broker.partitions_of_kafka().get(name)
        if partition is None:
            raise Moved(f"{name} was unloaded; try again.")
        work = clean(
            partition,
            made,
            f"clean-{name}-{now_ms}-{self._count}",
            self._worker,
            broker.store,
            broker.metadata,
            now_ms=now_ms,
            keys_max=broker.kafka_config.map_keys_max,
            io_bytes_per_second=pace_of(broker.kafka_config, broker.clock),
            defects=self.defects(name),
        )
        task = self._rounds[name] = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            turn = asyncio.current_task()
            if turn is not None and turn.cancelling():
                # The turn is to end, whether or not somebody has cancelled the round, too.
                _cancel(task)
                await asyncio.wait({task})
                raise
            raise CompactionCancelled(f"The round of {name} was aborted.") from None
        finally:
            del self._rounds[name]

    async def idle(self, name: str) -> None:
        """Returns when nothing is on its way to change the log."""
        while isinstance(self.states.of(name), InProgress | Aborted):
            await self._changed.wait()

    async def dry_run(self, name: str, made: Plan) -> CleanManifest:
        """Of a round by that plan, made just now and after idle(). Raises as round.dry_run().

        Until it has ended the log is paused: what it reads stays there.
        """
        async with self.paused(name, aborts=False):
            self._count += 1
            broker, now_ms = self._broker, self._broker.clock.now_ms()
            return await dry_run(
                broker.partitions_of_kafka()[name],
                made,
                f"plan-{name}-{now_ms}-{self._count}",
                self._worker,
                broker.store,
                now_ms=now_ms,
                keys_max=broker.kafka_config.map_keys_max,
                defects=self.defects(name),
            )

    def _may_try_again(self, name: str, error: LedgerfoldError) -> bool:
        if not (isinstance(error, CompactionFailed) and error.worker_died):
            return False
        self._deaths[name] = self._deaths.get(name, 0) + 1
        return self._deaths[name] < _DEATHS_MAX

    async def _failed(self, partition: Partition, made: Plan, error: LedgerfoldError) -> None:
        name = partition.name
        _log.error("%s: a round failed; the cleaner leaves it alone: %s", name, error)
        self.leave_alone(name, str(error), kind_of(error))
        await partition.set_checkpoint(made.first_dirty_offset)

    def _end(self, name: str) -> None:
        self.states.end_cleaning(name)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def leave_alone(self, name: str, why: str, kind: str = MARKED) -> None:
        """Until the broker starts anew, or the topic is deleted."""
        self.states.mark_uncleanable(name, kind, why)

    def gauge_values(self) -> dict[str, int]:
        """By Kafka's object names; none once it has stopped."""
        if self._is_over:
            return {}
        partitions, now_ms = self._broker.partitions_of_kafka(), self._broker.clock.now_ms()
        left_alone = self.states.uncleanable
        loaded = [partitions[each] for each in left_alone if each in partitions]
        bytes_left = sum(plan_of(each, now_ms).cleanable_bytes for each in loaded)
        values = self.gauges.values(len(left_alone), bytes_left)
        if not self.defects("").gauges_with_defects:
            return values
        return self.gauges.as_in_kafka(values, all(each.checkpoint is not None for each in loaded))

    def checkpoints(self, namespace: str = "") -> StoredCheckpoints:
        """The file cleaner-offset-checkpoint, as Kafka would have it, of loaded logs and others."""
        return stored_checkpoints(self._broker.metadata.topics(), namespace)

    def is_uncleanable(self, name: str) -> bool:
        return self.states.is_uncleanable(name)

    # -- who stands in the way -------------------------------------------------------------

    async def abort_and_pause(self, name: str) -> None:
        """Its round ends and changes nothing; none begins until resume(). Returns when it is so."""
        while self.states.is_aborted(name):
            # Somebody else waits for that, too.
            await self._changed.wait()
        if not self.states.abort_and_pause(name):
            if name in self._rounds:
                _cancel(self._rounds[name])
            while self.states.is_aborted(name):
                await self._changed.wait()

    def resume(self, name: str) -> None:
        self.states.resume(name)
        self._wake()

    @asynccontextmanager
    async def paused(self, name: str, *, aborts: bool) -> AsyncIterator[None]:
        """Inside nothing of it is cleaned. What is on its way is aborted, or waited for."""
        if aborts:
            await self.abort_and_pause(name)
        else:
            await self.idle(name)
            self.states.abort_and_pause(name)
        try:
            yield
        finally:
            self.states.end_pause(name)
            self._wake()

    async def forget(self, name: str) -> None:
        """Its topic is about to be unloaded: its round ends, and changes nothing."""
        if name in self._rounds:
            task = self._rounds[name]
            _cancel(task)
            await asyncio.wait({task})

    def deleted(self, name: str) -> None:
        """Its topic is gone for good: another one of that name begins without marks and pauses."""
        self.states.forget(name)
        self._deaths.pop(name, None)


def _cancel(task: asyncio.Task[RoundOutcome]) -> None:
    """Once: a second time would end the wait for the worker to end its round."""
    if not task.cancelling():
        task.cancel()


def plan_of(partition: Partition, now_ms: int) -> Plan:
    return plan(view_of(partition), partition.checkpoint, partition.config, now_ms)
