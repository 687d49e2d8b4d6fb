"""The log cleaner: chooses logs, cleans them and deletes old segments.

A *pass* is one iteration of a Kafka cleaner thread (docs/KAFKA.md, "A pass of the cleaner"):

1. Choose the dirtiest of the eligible logs (choice.py), or take the requested one.
2. Clean it (cleaning.py). An unload, a deletion of the topic or a policy without `compact` aborts
   the cleaning. A cleaning that fails marks its log *uncleanable*, and the cleaner skips the log
   until the broker restarts. Deaths of the worker mark a log only after _DEATHS_MAX in a row. If
   there is no worker, or the disk is full, no log is marked, and the pass fails after step 3.
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.kafka.cleaner.choice import Candidate, choose
from ledgerfold.broker.kafka.cleaner.cleaning import Cleaning, CleaningResult, view_of
from ledgerfold.broker.kafka.cleaner.cleanings import Cleanings, cancel_once
from ledgerfold.broker.kafka.cleaner.deletion import Deletion
from ledgerfold.broker.kafka.cleaner.gauges import Gauges
from ledgerfold.broker.kafka.cleaner.pass_result import PassResult, failure_kind
from ledgerfold.broker.kafka.cleaner.states import MARKED
from ledgerfold.broker.kafka.cleaner.throttle import cleaning_rate, delay_ms_after
from ledgerfold.broker.kafka.config.config import BrokerConfig, Defects
from ledgerfold.broker.kafka.log.checkpoint_file import StoredCheckpoints, stored_checkpoints
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.kafka.cleanable import Plan, plan
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactionFenced,
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


class _Begun(NamedTuple):
    """A cleaning that has begun, of exactly this partition."""

    partition: Partition
    plan: Plan


class _Ended(NamedTuple):
    """The end of a cleaning. `obstacle`: it has another cause than the log."""

    outcome: CleaningResult | None = None
    was_aborted: bool = False
    failure: LedgerfoldError | None = None
    obstacle: LedgerfoldError | None = None


class Cleaner(Cleanings):
    """The log cleaner of one broker, on its event loop."""

    def __init__(
        self, broker: CleanerBroker, compactor: Compactor, defects: Callable[[str], Defects]
    ) -> None:
        """Creates a cleaner. `defects(topic)` returns the enabled defects of a topic; of the broker
        for "".
        """
        super().__init__()
        self._broker, self._compactor, self.defects = broker, compactor, defects
        self.gauges = Gauges(broker.clock.now_ms)
        self._deletion = Deletion(
            broker.partitions_of_kafka, broker.clock.now_ms, self.states, self._wake
        )
        # Recent passes, newest first.
        self.last_passes: deque[PassResult] = deque(maxlen=_PASSES_KEPT)
        self._count = 0
        self._choosing = asyncio.Lock()
        # Deaths of the worker while it cleaned a log, since that log's last completed cleaning.
        self._deaths: dict[str, int] = {}
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
            cancel_once(task)
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
        return await self._deletion.of_uncompacted()

    # -- a pass ----------------------------------------------------------------------------

    async def run_pass(self, topic: str | None = None) -> PassResult:
        """Runs one pass. Raises CompactorUnavailable, StorageError.

        `topic`: clean this log, regardless of its dirty ratio. A cleaning that fails raises
        nothing: the result has its failure.
        """
        began_ms = self._broker.clock.now_ms()
        # The lock keeps two threads from choosing the same log while a checkpoint is written.
        async with self._choosing:
            await self._repair_checkpoints(began_ms)
            plans = self._plans()
            choice = choose(plans, self._full_disks)
            begun = self._begin(topic or choice.log, plans, is_requested=topic is not None)
        self.gauges.chosen(choice, began_ms)
        ended = _Ended() if begun is None else await self._clean(begun)
        deleted = 0 if ended.failure else await self._deletion.of_compacted()
        elapsed_ms = self._broker.clock.now_ms() - began_ms
        result = PassResult(
            None if begun is None or ended.obstacle else begun.partition.name,
            choice,
            None if begun is None else begun.plan,
            ended.outcome,
            ended.was_aborted,
            ended.failure,
            deleted,
            elapsed_ms,
            began_ms,
        )
        if result.topic is not None or result.deleted_segments:
            self.last_passes.appendleft(result)
        if ended.obstacle is not None:
            raise ended.obstacle
        self.gauges.ended(result.outcome, elapsed_ms, self._broker.kafka_config.map_slots)
        return result

    def _candidates(self) -> list[Partition]:
        """Returns the compacted logs that may be cleaned: without a state, failure or mark."""
        return [
            each
            for name, each in self._broker.partitions_of_kafka().items()
            if each.config.is_compacted
            and each.log.state.failure is None
            and self.states.is_free(name)
            and not self.states.is_uncleanable(name)
        ]

    async def _repair_checkpoints(self, now_ms: int) -> None:
        """Replaces checkpoints that are not in their log. Raises DiskFailure."""
        for partition in self._candidates():
            planned = self._plan(partition, now_ms)
            if planned is not None and planned.must_repair:
                name, wrong = partition.name, partition.checkpoint
                _log.warning("%s: invalid checkpoint %s; reset to the log start", name, wrong)
                with suppress(Moved):
                    await partition.set_checkpoint(planned.first_dirty_offset)

    def _plans(self) -> dict[str, Candidate]:
        """Returns the present plans of all candidates."""
        now_ms = self._broker.clock.now_ms()
        plans = {each: self._plan(each, now_ms) for each in self._candidates()}
        return {
            partition.name: Candidate(plan, partition.config.min_cleanable_ratio)
            for partition, plan in plans.items()
            if plan is not None
        }

    def _plan(self, partition: Partition, now_ms: int) -> Plan | None:
        """Returns a log's plan. A defect in making it is the log's, as in Kafka: it is marked."""
        try:
            return plan_of(partition, now_ms)
        except Exception as error:
            name, failure = partition.name, CompactionFailed("plan", repr(error))
            if self._broker.partitions_of_kafka().get(name) is partition:
                _log.exception("%s: no cleaning can be planned", name)
                self.mark_uncleanable(name, str(failure), failure_kind(failure))
            return None

    def _begin(
        self, name: str | None, plans: Mapping[str, Candidate], *, is_requested: bool
    ) -> _Begun | None:
        """Begins the cleaning of a log; None if it has a state, a mark or nothing to clean.

        NOTE: nothing is awaited between the plans and the cleaning, which would be of another log
        if its topic were deleted and created again, or truncated, meanwhile.
        """
        if name is None or name not in plans:
            return None
        planned = plans[name].plan
        if (is_requested and not planned.cleanable_bytes) or not self.states.begin(name):
            return None
        return _Begun(self._broker.partitions_of_kafka()[name], planned)

    async def _clean(self, running: _Begun) -> _Ended:
        """Runs a cleaning that has begun, to its end. Raises DiskFailure."""
        partition, name = running.partition, running.partition.name
        config, clock = self._broker.kafka_config, self._broker.clock
        try:
            work = self._cleaning("clean", partition, running.plan)
            rate = cleaning_rate(config, clock)
            outcome = await self._run(name, work.run(self._broker.metadata, rate))
        except (CompactionFenced, CompactionCancelled, Moved):
            return _Ended(was_aborted=True)
        except Exception as error:
            return await self._ended_by(error, running)
        finally:
            self._end(name)
        self._forget_obstacles(name)
        return _Ended(outcome)

    async def _ended_by(self, error: Exception, running: _Begun) -> _Ended:
        """Handles the failure of a cleaning. Raises DiskFailure."""
        partition, name = running.partition, running.partition.name
        if (obstacle := self._obstacle(name, error)) is not None:
            return _Ended(obstacle=obstacle)
        is_there = self._broker.partitions_of_kafka().get(name) is partition
        if not is_there or partition.log.state.failure is not None:
            # NOTE: the log has failed and will be reloaded, or was already; the cleaning did not
            # cause that.
            return _Ended(was_aborted=True)
        if not isinstance(error, LedgerfoldError):
            # As in Kafka, a defect marks the log that meets it, and other logs are cleaned.
            _log.error("%s: a cleaning failed with an internal error", name, exc_info=error)
            error = CompactionFailed("clean", repr(error))
        if not self._may_try_again(name, error):
            await self._failed(partition, running.plan, error)
        return _Ended(failure=error)

    async def dry_run(self, name: str, plan: Plan) -> CleanManifest:
        """Runs a dry run of `plan`, a plan made after idle(). Raises as Cleaning.dry_run().

        The log is paused until the dry run ends, so that the files it reads stay.
        """
        async with self.paused(name, aborts=False):
            partition = self._broker.partitions_of_kafka().get(name)
            if partition is None:
                raise Moved(f"{name} was unloaded; try again.")
            return await self._cleaning("plan", partition, plan).dry_run()

    def _cleaning(self, kind: str, partition: Partition, plan: Plan) -> Cleaning:
        """Returns a cleaning of the log under a new run id."""
        broker, now_ms, name = self._broker, self._broker.clock.now_ms(), partition.name
        self._count += 1
        return Cleaning(
            partition,
            plan,
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

    async def _failed(self, partition: Partition, plan: Plan, error: LedgerfoldError) -> None:
        name = partition.name
        _log.error("%s: a cleaning failed; the log is uncleanable: %s", name, error)
        self.mark_uncleanable(name, str(error), failure_kind(error))
        await partition.set_checkpoint(plan.first_dirty_offset)

    def mark_uncleanable(self, name: str, why: str, kind: str = MARKED) -> None:
        """Marks a log uncleanable until the broker restarts or the topic is deleted."""
        self.states.mark_uncleanable(name, kind, why)

    def deleted(self, name: str) -> None:
        """Drops marks and pauses of a deleted topic, so that a new topic of the same name
        has none.
        """
        self.states.forget(name)
        self._restored.discard(name)
        self.unstored.pop(name, None)
        self._forget_obstacles(name)

    def _forget_obstacles(self, name: str) -> None:
        self._deaths.pop(name, None)
        self._full_disks.pop(name, None)

    def gauge_values(self) -> dict[str, int]:
        """Returns the gauges by Kafka's object names; none after stop()."""
        if self._is_over:
            return {}
        partitions, now_ms = self._broker.partitions_of_kafka(), self._broker.clock.now_ms()
        left_alone = self.states.uncleanable
        loaded = [partitions[each] for each in left_alone if each in partitions]
        plans = [self._plan(each, now_ms) for each in loaded]
        bytes_left = sum(plan.cleanable_bytes for plan in plans if plan is not None)
        values = self.gauges.values(len(left_alone), bytes_left)
        if not self.defects("").gauges_with_defects:
            return values
        return self.gauges.as_in_kafka(values, all(each.checkpoint is not None for each in loaded))

    def checkpoints(self, namespace: str = "") -> StoredCheckpoints:
        """Returns cleaner-offset-checkpoint as Kafka would write it, for loaded and other logs."""
        return stored_checkpoints(self._broker.metadata.topics(), namespace)


def plan_of(partition: Partition, now_ms: int) -> Plan:
    return plan(view_of(partition), partition.checkpoint, partition.config, now_ms)
