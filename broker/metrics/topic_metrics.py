"""The metrics of each topic, and their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.broker.metrics.metric import COUNTER, GAUGE, TOPIC_LABELS, Metric, Stats
from ledgerfold.broker.metrics.totals import LATENCY_BOUNDS, TopicTotals


class TopicSource(NamedTuple):
    """The sources of a topic's values. None: no value.

    `stats`: the output of `topics stats`. `totals`: those of its compactions.
    """

    stats: Stats
    totals: TopicTotals | None = None
    compacted_entries: int | None = None
    compacted_bytes: int | None = None
    garbage_bytes: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    since_success_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicMetric:
    """A metric with one sample per topic, none if `read` returns None."""

    metric: Metric
    read: Callable[[TopicSource], float | None]


def _topic(
    name: str, kind: str, unit: str, help: str, read: Callable[[TopicSource], float | None]
) -> TopicMetric:
    return TopicMetric(Metric(name, kind, unit, help, TOPIC_LABELS), read)


def _compaction(
    name: str, kind: str, unit: str, help: str, read: Callable[[TopicTotals], float]
) -> TopicMetric:
    """Declares a metric of topics that were compacted since the broker started."""

    def read_totals(source: TopicSource) -> float | None:
        return None if source.totals is None else read(source.totals)

    return _topic(name, kind, unit, help, read_totals)


def _latency(at: int) -> Callable[[TopicTotals], float]:
    return lambda totals: totals.latency_counts[at]


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _subscriptions(source: TopicSource) -> list[Stats]:
    return list(source.stats["subscriptions"].values())


TOPIC_METRICS = (
    _topic(
        "pulsar_subscriptions_count",
        GAUGE,
        "",
        "Subscriptions, including `__compaction` and readers.",
        lambda source: len(_subscriptions(source)),
    ),
    _topic(
        "pulsar_producers_count",
        GAUGE,
        "",
        "Connected producers.",
        lambda source: len(source.stats["publishers"]),
    ),
    _topic(
        "pulsar_consumers_count",
        GAUGE,
        "",
        "Connected consumers and readers.",
        lambda source: sum(len(each["consumers"]) for each in _subscriptions(source)),
    ),
    _topic(
        "pulsar_in_messages_total",
        COUNTER,
        "messages",
        "Published since the topic was loaded.",
        lambda source: source.stats["msgInCounter"],
    ),
    _topic(
        "pulsar_in_bytes_total",
        COUNTER,
        "bytes",
        "Published since the topic was loaded.",
        lambda source: source.stats["bytesInCounter"],
    ),
    _topic(
        "pulsar_average_msg_size",
        GAUGE,
        "bytes",
        "Average size of the messages published since the topic was loaded.",
        lambda source: source.stats["averageMsgSize"],
    ),
    _topic(
        "pulsar_storage_size",
        GAUGE,
        "bytes",
        "Size of the raw ledgers. As in Pulsar, the compacted ledger is not included.",
        lambda source: source.stats["storageSize"],
    ),
    _topic(
        "pulsar_storage_backlog_size",
        GAUGE,
        "bytes",
        "Size of the raw data after the slowest durable cursor, including `__compaction`.",
        lambda source: source.stats["backlogSize"],
    ),
    _topic(
        "pulsar_msg_backlog",
        GAUGE,
        "entries",
        "Total backlog of all subscriptions.",
        lambda source: sum(each["msgBacklog"] for each in _subscriptions(source)),
    ),
    _compaction(
        "pulsar_compaction_removed_event_count",
        GAUGE,
        "messages",
        "Replaced values, tombstones and dropped messages without a key, over all runs.",
        lambda totals: totals.removed_events,
    ),
    _compaction(
        "pulsar_compaction_succeed_count",
        GAUGE,
        "",
        "Runs that succeeded.",
        lambda totals: totals.succeeded,
    ),
    _compaction(
        "pulsar_compaction_failed_count",
        GAUGE,
        "",
        "Runs that failed, were cancelled, or lost their topic.",
        lambda totals: totals.failed,
    ),
    _compaction(
        "pulsar_compaction_duration_time_in_mills",
        GAUGE,
        "milliseconds",
        "Total duration of all runs.",
        lambda totals: totals.duration_ms,
    ),
    _compaction(
        "pulsar_compaction_read_throughput",
        GAUGE,
        "bytes per second",
        "Read throughput of the last successful run.",
        lambda totals: totals.read_throughput,
    ),
    _compaction(
        "pulsar_compaction_write_throughput",
        GAUGE,
        "bytes per second",
        "Write throughput of the last successful run.",
        lambda totals: totals.write_throughput,
    ),
    *(
        _compaction(
            f"pulsar_compaction_latency_{bound}",
            GAUGE,
            "",
            "Writes to compacted ledgers by duration in ms; each is counted in one bucket.",
            _latency(at),
        )
        for at, bound in enumerate(LATENCY_BOUNDS)
    ),
    _compaction(
        "pulsar_compaction_latency_sum",
        GAUGE,
        "microseconds",
        "Total duration of writes to compacted ledgers.",
        lambda totals: totals.latency_us,
    ),
    _compaction(
        "pulsar_compaction_latency_count",
        GAUGE,
        "",
        "Writes to compacted ledgers.",
        lambda totals: sum(totals.latency_counts),
    ),
    _topic(
        "pulsar_compaction_compacted_entries_count",
        GAUGE,
        "entries",
        "Entries in the compacted ledger, if there is one.",
        lambda source: source.compacted_entries,
    ),
    _topic(
        "pulsar_compaction_compacted_entries_size",
        GAUGE,
        "bytes",
        "Size of the compacted ledger, if there is one.",
        lambda source: source.compacted_bytes,
    ),
    _topic(
        "ledgerfold_compaction_garbage_bytes",
        GAUGE,
        "bytes",
        "Part of the compacted ledger that dead messages take.",
        lambda source: source.garbage_bytes,
    ),
    _compaction(
        "ledgerfold_compaction_new_bytes_total",
        COUNTER,
        "bytes",
        "Size of the raw segments that runs have read.",
        lambda totals: totals.bytes_new,
    ),
    _compaction(
        "ledgerfold_compaction_written_bytes_total",
        COUNTER,
        "bytes",
        "Size of what runs have written. Divided by the new bytes it is the write amplification.",
        lambda totals: totals.bytes_written,
    ),
    _topic(
        "ledgerfold_compaction_horizon_lag_bytes",
        GAUGE,
        "bytes",
        "Raw data after the horizon, for topics whose compaction was ever requested.",
        lambda source: source.lag_bytes,
    ),
    _topic(
        "ledgerfold_compaction_horizon_lag_seconds",
        GAUGE,
        "seconds",
        "Age of the oldest message after the horizon; 0 if there is none.",
        lambda source: _seconds(source.lag_ms),
    ),
    _topic(
        "ledgerfold_compaction_seconds_since_success",
        GAUGE,
        "seconds",
        "Time since the last successful run, even if that was before a restart.",
        lambda source: _seconds(source.since_success_ms),
    ),
    _compaction(
        "ledgerfold_compaction_phase_one_seconds_total",
        COUNTER,
        "seconds",
        "Total duration of phase one, which finds the surviving positions.",
        lambda totals: totals.phase_one_ms / 1000,
    ),
    _compaction(
        "ledgerfold_compaction_phase_two_seconds_total",
        COUNTER,
        "seconds",
        "Total duration of phase two, which copies the survivors.",
        lambda totals: totals.phase_two_ms / 1000,
    ),
)
