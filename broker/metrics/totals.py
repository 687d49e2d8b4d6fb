"""The totals of each topic's compactions since the broker started.

Pulsar keeps the same sums in memory (CompactionRecord): a topic has none before its first run,
failed runs count too, and they are dropped with the topic. Throughputs are those of the last
successful run; Pulsar's cover the time since the last scrape, and are 0 except for one scrape per
run.

  >>> totals = CompactionTotals()
  >>> counts = RunCounts(removed_events=2, bytes_in=10, bytes_out=5)
  >>> totals.add(RunRecord(topic="t", state=RUN_STATE_SUCCESS, ended_ms=500, counts=counts))
  >>> totals.of("t").removed_events, totals.of("t").succeeded, totals.of("u")
  (2, 1, None)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerfold.broker.compaction.history import duration_ms
from ledgerfold.storage.records import bytes_written
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, RunCounts, RunRecord

# Upper bounds of RunCounts.write_latency_counts in ms, as in Pulsar's names.
LATENCY_BOUNDS = (
    *("le_0_5", "le_1", "le_5", "le_10", "le_20", "le_50", "le_100", "le_200", "le_1000"),
    "overflow",
)


@dataclass(slots=True)
class TopicTotals:
    """The totals of one topic. Throughputs in bytes/s.

    `latency_counts`: one for each LATENCY_BOUNDS.
    """

    removed_events: int = 0
    succeeded: int = 0
    failed: int = 0
    duration_ms: int = 0
    read_throughput: float = 0.0
    write_throughput: float = 0.0
    latency_counts: list[int] = field(default_factory=lambda: [0] * len(LATENCY_BOUNDS))
    latency_us: int = 0
    phase_one_ms: int = 0
    phase_two_ms: int = 0
    bytes_new: int = 0
    bytes_written: int = 0

    def add(self, run: RunRecord) -> None:
        """Adds an ended run, successful or not."""
        took_ms = duration_ms(run)
        self.duration_ms += took_ms
        if run.state != RUN_STATE_SUCCESS:
            self.failed += 1
            return
        self.succeeded += 1
        self._add_counts(run.counts)
        seconds = max(took_ms, 1) / 1000
        self.read_throughput = run.counts.bytes_in / seconds
        self.write_throughput = bytes_written(run.counts) / seconds

    def _add_counts(self, counts: RunCounts) -> None:
        self.removed_events += counts.removed_events
        self.phase_one_ms += counts.phase_one_ms
        self.phase_two_ms += counts.phase_two_ms
        self.bytes_new += counts.bytes_new
        self.bytes_written += bytes_written(counts)
        self.latency_us += counts.write_latency_us
        for at, count in enumerate(counts.write_latency_counts):
            self.latency_counts[at] += count


class CompactionTotals:
    """The totals by full topic name, updated at every run's end and every deletion."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTotals] = {}

    def add(self, run: RunRecord) -> None:
        self._topics.setdefault(run.topic, TopicTotals()).add(run)

    def forget(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def of(self, topic: str) -> TopicTotals | None:
        """Returns a topic's totals; None if no run has ended since the broker started."""
        return self._topics.get(topic)
