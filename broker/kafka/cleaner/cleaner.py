"""The log cleaner: chooses logs, cleans them and deletes old segments.

A *pass* is one iteration of a Kafka cleaner thread (docs/KAFKA.md, "A pass of the cleaner"):

1. Choose the dirtiest of the eligible logs (choice.py), or take the requested one.
2. Clean it (cleaning.py). An unload, a deletion of the topic or a policy without `compact` aborts
   the cleaning. A cleaning that fails marks its log *uncleanable*, and the cleaner skips the log
   until the broker restarts. Deaths of the worker mark a log only after _DEATHS_MAX in a row.
3. Delete old segments of every compacted log that has no state (ledgerfold/kafka/retention.py).

`log.cleaner.threads` threads run passes concurrently. A thread that found nothing to clean waits
`log.cleaner.backoff.ms`, on the broker's clock. The retention thread handles logs that are not
compacted, every `log.retention.check.interval.ms`.

Source: LogCleaner, LogCleanerManager, LogManager.cleanupLogs of Kafka 4.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.kafka.cleaner.choice import Candidate, choose
from ledgerfold.broker.kafka.cleaner.cleaning import Cleaning, CleaningResult, view_of
from ledgerfold.broker.kafka.cleaner.deletion import Deletion
from ledgerfold.broker.kafka.cleaner.gauges import Gauges
from ledgerfold.broker.kafka.cleaner.pass_result import PassResult, failure_kind
from ledgerfold.broker.kafka.cleaner.states import MARKED, Aborted, InProgress, States
from ledgerfold.broker.kafka.cleaner.throttle import cleaning_rate, delay_ms_after
from ledgerfold.broker.kafka.config.config import BrokerConfig
from ledgerfold.broker.kafka.config.defects import Defects
from ledgerfold.broker.kafka.log.checkpoint_file import StoredCheckpoints, stored_checkpoints
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.worker.compactor import Compactor
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
# Passes that did something and are remembered.
_PASSES_KEPT = 20
# Cleanings in a row in which the worker died before their log is marked: the log may be the cause.
_DEATHS_MAX = 3


class CleanerBroker(Protocol):
    """The part of the broker that the cleaner uses (broker/topics/broker.py)."""

    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def kafka_config(self) -> BrokerConfig: ...
    def partitions_of_kafka(self) -> Mapping[str, Partition]:
        """Returns the loaded partitions by topic name."""
        ...


class Cleaner:
    """The log cleaner of one broker, on its event loop."""

    def __init__(
        self, broker: CleanerBroker, compactor: Compactor, defects: Callable[[str], Defects]
    ) -> None:
        """Creates a cleaner. `defects(topic)` returns the enabled defects of a topic; of the broker
        for "".
        """
        self._broker, self._compactor, self.defects = broker, compactor, defects
        self.states = States()
        self.gauges = Gauges(broker.clock.now_ms)
        self._deletion = Deletion(
            broker.partitions_of_kafka, broker.clock.now_ms, self.states, self._wake
        )
        self._cleanings: dict[str, asyncio.Task[CleaningResult]] = {}
        # Recent passes, newest first.
        self.last_passes: deque[PassResult] = deque(maxlen=_PASSES_KEPT)
        self._count = 0
        self._choosing = asyncio.Lock()
        # Deaths of the worker while it cleaned a log, since that log's last completed cleaning.
        self._deaths: dict[str, int] = {}
        # Set when a log leaves its state.
        self._changed = asyncio.Event()
        # All topics are loaded, and passes may run.
        self.has_started = False
        # Running cleaner threads and the retention thread.
        self._threads: list[asyncio.Task[None]] = []
        self._is_over = False

    # -- threads ---------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the cleaner threads, if enabled, and the retention thread."""
        config, self.has_started = self._broker.kafka_config, True
        if config["log.cleaner.enable"]:
            for number in range(config.number("log.cleaner.threads")):
                self._threads.append(asyncio.create_task(self._run_passes(number)))
        self._threads.append(asyncio.create_task(self._retain()))

    async def stop(self) -> None:
        """Stops the cleaner and removes its gauges. Cleanings in progress are aborted and change
        nothing.
        """
        self._is_over = True
        await self._stop()

    async def _stop(self) -> None:
        threads, self._threads = self._threads, []
        cleanings = list(self._cleanings.values())
        for each in threads:
            each.cancel()
        for task in cleanings:
            _cancel(task)
        if threads or cleanings:
            await asyncio.wait({*threads, *cleanings})

    async def restart(self) -> None:
        """Restarts all threads after a change of settings, as Kafka does."""
        if self._threads:
            await self._stop()
            self.start()

    async def _run_passes(self, number: int) -> None:
        clock = self._broker.clock
        while True:
            try:
                result = await self.run_pass()
                is_idle = result.topic is None or result.failure is not None
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
            elif result.outcome is not None:
                stats = result.outcome.manifest.stats
                size_bytes = stats.bytes_read + stats.bytes_written
                await clock.sleep(
                    delay_ms_after(config, clock, size_bytes, result.elapsed_ms) / 1000
                )

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
        """Runs one retention pass over logs that are not compacted. Returns the number of deleted
        segments.
        """
        return await self._deletion.of_others()

    # -- a pass ----------------------------------------------------------------------------

    async def run_pass(self, topic: str | None = None) -> PassResult:
        """Runs one pass. Raises CompactorUnavailable, StorageError.

        `topic`: clean this log, regardless of its dirty ratio. A cleaning that fails raises
        nothing: the result has its failure.
        """
        began_ms = self._broker.clock.now_ms()
        # The lock keeps two threads from choosing the same log while a checkpoint is written.
        async with self._choosing:
            plans = await self._plans()
            choice = choose(plans)
            chosen = topic or choice.log
            made = plans[chosen].plan if chosen in plans else None
            if made is None or (topic is not None and not made.cleanable_bytes):
                # It has a state, is uncleanable, or has nothing to clean.
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
                # NOTE: the log did not cause this, and is tried again.
                raise
            except LedgerfoldError as error:
                partition = self._broker.partitions_of_kafka().get(chosen)
                if partition is None or partition.log.state.failure is not None:
                    # NOTE: the log has failed and will be reloaded; the cleaning did not cause
                    # that.
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
        result = PassResult(
            chosen, choice, made, outcome, was_aborted, failure, deleted, elapsed_ms, began_ms
        )
        if result.topic is not None or result.deleted_segments:
            self.last_passes.appendleft(result)
        self.gauges.ended(result.outcome, elapsed_ms, self._broker.kafka_config.map_slots)
        return result

    async def _plans(self) -> dict[str, Candidate]:
        """Returns the compacted logs that have no state. Repairs invalid checkpoints."""
        candidates = {}
        now_ms = self._broker.clock.now_ms()
        for name, partition in list(self._broker.partitions_of_kafka().items()):
            is_candidate = partition.config.is_compacted and self.states.is_free(name)
            has_failed = partition.log.state.failure is not None
            if not is_candidate or has_failed or self.states.is_uncleanable(name):
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

    async def _clean(self, name: str, made: Plan) -> CleaningResult:
        config, clock = self._broker.kafka_config, self._broker.clock
        cleaning = self._cleaning("clean", name, made)
        work = cleaning.run(self._broker.metadata, cleaning_rate(config, clock))
        task = self._cleanings[name] = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                # The pass itself is cancelled, with or without the cleaning.
                _cancel(task)
                await asyncio.wait({task})
                raise
            raise CompactionCancelled(f"The cleaning of {name} was aborted.") from None
        finally:
            del self._cleanings[name]

    async def idle(self, name: str) -> None:
        """Waits until no cleaning or deletion of the log is in progress."""
        while isinstance(self.states.of(name), InProgress | Aborted):
            await self._changed.wait()

    async def dry_run(self, name: str, made: Plan) -> CleanManifest:
        """Runs a dry run of `made`, a plan made after idle(). Raises as Cleaning.dry_run().

        The log is paused until the dry run ends, so that the files it reads stay.
        """
        async with self.paused(name, aborts=False):
            return await self._cleaning("plan", name, made).dry_run()

    def _cleaning(self, kind: str, name: str, made: Plan) -> Cleaning:
        """Returns a cleaning of the log under a new run id. Raises Moved if it is not loaded."""
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        partition = broker.partitions_of_kafka().get(name)
        if partition is None:
            raise Moved(f"{name} was unloaded; try again.")
        self._count += 1
        return Cleaning(
            partition,
            made,
            f"{kind}-{name}-{now_ms}-{self._count}",
            self._compactor,
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
        _log.error("%s: a cleaning failed; the log is uncleanable: %s", name, error)
        self.mark_uncleanable(name, str(error), failure_kind(error))
        await partition.set_checkpoint(made.first_dirty_offset)

    def _end(self, name: str) -> None:
        self.states.end(name)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def mark_uncleanable(self, name: str, why: str, kind: str = MARKED) -> None:
        """Marks a log uncleanable until the broker restarts or the topic is deleted."""
        self.states.mark_uncleanable(name, kind, why)

    def gauge_values(self) -> dict[str, int]:
        """Returns the gauges by Kafka's object names; none after stop()."""
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
        """Returns cleaner-offset-checkpoint as Kafka would write it, for loaded and other logs."""
        return stored_checkpoints(self._broker.metadata.topics(), namespace)

    # -- aborting and pausing --------------------------------------------------------------

    async def abort_and_pause(self, name: str) -> None:
        """Aborts a log's cleaning and prevents another until resume(). Returns once paused."""
        while self.states.is_aborted(name):
            # Another caller is aborting it, too.
            await self._changed.wait()
        if not self.states.abort_and_pause(name):
            if name in self._cleanings:
                _cancel(self._cleanings[name])
            while self.states.is_aborted(name):
                await self._changed.wait()

    def resume(self, name: str) -> None:
        self.states.resume(name)
        self._wake()

    @asynccontextmanager
    async def paused(self, name: str, *, aborts: bool) -> AsyncIterator[None]:
        """Pauses a log for the block. A cleaning is aborted if `aborts`, else awaited."""
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
        """Aborts the log's cleaning before its topic is unloaded."""
        if name in self._cleanings:
            task = self._cleanings[name]
            _cancel(task)
            await asyncio.wait({task})

    def deleted(self, name: str) -> None:
        """Drops marks and pauses of a deleted topic, so that a new topic of the same name
        has none.
        """
        self.states.forget(name)
        self._deaths.pop(name, None)


def _cancel(task: asyncio.Task[CleaningResult]) -> None:
    """Cancels a cleaning once: a second cancel would interrupt the wait for the worker."""
    if not task.cancelling():
        task.cancel()


def plan_of(partition: Partition, now_ms: int) -> Plan:
    return plan(view_of(partition), partition.checkpoint, partition.config, now_ms)
