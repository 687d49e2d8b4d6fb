"""A Kafka topic's history, foretold and then lived through: the replay and the product.

Both are in this process. The forecast for a log that was never cleaned is compared with what the
broker's cleaner and the worker's rounds do to a log with the same batches at the same times, whose
cleaner wakes each `log.cleaner.backoff.ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.whatif.kafka_forecaster import history_of
from ledgerfold.broker.whatif.kafka_trials import OF_BROKER, settings_of
from ledgerfold.compactor.job.inline import InlineEngine
from ledgerfold.compactor.what_if.kafka.replays import KafkaAnalysisRun
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch, records_of
from ledgerfold.v1.what_if_pb2 import CleaningTrial, TopicWhatIf
from tests.differential.kafka_local import LocalBroker

BEGAN_MS = 1_000_000
TOPIC = "t"
NOTHING: Mapping[str, str] = {}


class Step(NamedTuple):
    """A batch, or with `commits` a marker, so long after the one before.

    `producer_id` 0: none; of a transactional one it is above 10. `later_ms`: how far the records'
    time is ahead; None: they have none.
    """

    after_ms: int
    pairs: tuple[tuple[bytes, bytes | None], ...] = ()
    producer_id: int = 0
    commits: bool | None = None
    later_ms: int | None = 0
    compression: int = 0


class Moment(NamedTuple):
    """A batch as sent, or a marker."""

    time_ms: int
    batch: bytes
    marker: Step | None = None


def moments(steps: Iterable[Step]) -> list[Moment]:
    found: list[Moment] = []
    sequences: dict[int, int] = {}
    now_ms = BEGAN_MS
    for step in steps:
        now_ms += step.after_ms
        if step.commits is not None:
            found.append(Moment(now_ms, b"", step))
            continue
        time_ms = -1 if step.later_ms is None else now_ms + step.later_ms
        records = [KafkaRecord(at, time_ms, *pair) for at, pair in enumerate(step.pairs)]
        fields: dict[str, Any] = {"base_offset": 0, "compression": step.compression}
        if step.producer_id:
            sequence = sequences.get(step.producer_id, 0)
            sequences[step.producer_id] = sequence + len(records)
            fields |= {
                "producer_id": step.producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": step.producer_id > 10,
            }
        found.append(Moment(now_ms, build_batch(records, **fields)))
    return found


@dataclass
class Lived:
    """The result of a log's life."""

    rounds: int = 0
    bytes_read: int = 0
    bytes_rewritten: int = 0
    space_peak_bytes: int = 0
    space_end_bytes: int = 0
    segments_end: int = 0
    records_end: int = 0
    tombstones_end: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def mean_bytes(self, end_ms: int) -> float:
        """Returns the mean up to that time, which is after the first append."""
        times = [min(time_ms, end_ms) for time_ms, _ in self.sizes]
        lasted = [after - before for before, after in pairwise([*times, end_ms])]
        total = sum(ms * size for ms, (_, size) in zip(lasted, self.sizes, strict=True))
        return total / (end_ms - times[0])


class Foretelling:
    """Brokers one after the other. Close it."""

    def __init__(self) -> None:
        self._broker = LocalBroker()

    def close(self) -> None:
        self._broker.close()

    def _topic(self) -> KafkaTopic:
        broker, name = self._broker._topic(TOPIC)
        return broker.kafka_topics[name]

    def _append(self, moment: Moment) -> None:
        topic, marker = self._topic(), moment.marker
        self._broker.move_clock(moment.time_ms)
        if marker is None:
            self._broker._run(topic.append_batches(moment.batch, Origin.CLIENT))
        else:
            ended = topic.end_transaction(
                marker.producer_id, 0, commit=bool(marker.commits), timestamp_ms=moment.time_ms
            )
            self._broker._run(ended)

    def foretold(
        self,
        steps: Sequence[Step],
        trials: Sequence[Mapping[str, str]],
        own: Mapping[str, str] = NOTHING,
    ) -> TopicWhatIf:
        """Returns the forecast for a log that was never cleaned."""
        self._broker.begin({}, BEGAN_MS)
        self._broker.create(TOPIC, {"cleanup.policy": "compact", **own})
        for moment in moments(steps):
            self._append(moment)
        return self.told(trials)

    def told(self, trials: Sequence[Mapping[str, str]]) -> TopicWhatIf:
        """Returns the forecast for the existing log."""
        broker, topic = self._broker._topic(TOPIC)[0], self._topic()
        settings = [
            settings_of(
                CleaningTrial(config=each), TOPIC, topic.record.kafka.config, broker.kafka_config
            )
            for each in trials
        ]
        asked = history_of(topic, str(broker.store.ledgers_dir), settings)
        return KafkaAnalysisRun(asked, InlineEngine()).execute()

    def lived(
        self,
        steps: Sequence[Step],
        trial: Mapping[str, str],
        end_ms: int,
        own: Mapping[str, str] = NOTHING,
    ) -> Lived:
        """Through the cleaner's turns, up to that time at least."""
        of_broker = {name: text for name, text in trial.items() if name in OF_BROKER}
        config = {name: text for name, text in trial.items() if name not in OF_BROKER}
        self._broker.begin(of_broker, BEGAN_MS)
        self._broker.create(TOPIC, {"cleanup.policy": "compact", **own, **config})
        backoff_ms = int(trial.get("log.cleaner.backoff.ms", "15000"))
        found, coming = Lived(), moments(steps)
        tick_ms = coming[0].time_ms
        for moment in coming:
            tick_ms = self._turns(found, tick_ms, moment.time_ms, backoff_ms)
            self._append(moment)
            self._note(found, moment.time_ms)
        self._turns(found, tick_ms, end_ms + 1, backoff_ms)
        return self._ended(found)

    def _turns(self, found: Lived, tick_ms: int, upto_ms: int, backoff_ms: int) -> int:
        """All before that time. When the next one is."""
        while tick_ms < upto_ms:
            self._broker.move_clock(tick_ms)
            while self._turn(found, tick_ms):
                pass
            tick_ms += backoff_ms
        return tick_ms

    def _turn(self, found: Lived, now_ms: int) -> bool:
        before = self._size()
        broker, _ = self._broker._topic(TOPIC)
        turn = self._broker._run(broker.cleaner.run_pass())
        assert turn.failure is None
        if turn.outcome is not None:
            stats = turn.outcome.manifest.stats
            found.rounds += 1
            found.bytes_read += stats.bytes_read
            found.bytes_rewritten += stats.bytes_written
            found.space_peak_bytes = max(found.space_peak_bytes, before + stats.bytes_written)
        self._note(found, now_ms)
        return turn.outcome is not None

    def _size(self) -> int:
        return sum(each.facts.size_bytes for each in self._topic().log.segments)

    def _note(self, found: Lived, now_ms: int) -> None:
        size = self._size()
        found.sizes.append((now_ms, size))
        found.space_peak_bytes = max(found.space_peak_bytes, size)

    def _ended(self, found: Lived) -> Lived:
        found.space_end_bytes = self._size()
        found.segments_end = len(self._topic().log.segments)
        for each in self._broker._run(self._topic().describe(batches=True)).batches:
            header = read_batch_header(each.batch)
            found.records_end += header.record_count
            if header.record_count and not header.is_control:
                nulls = [record for record in records_of(each.batch) if record.value is None]
                found.tombstones_end += len(nulls)
        return found
