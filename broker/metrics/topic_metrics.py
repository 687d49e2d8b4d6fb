"""The metrics of each topic, and their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ledgerfold.broker.metrics.metric import COUNTER, GAUGE, TOPIC_LABELS, Metric, Sampled, Stats
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


TopicMetric: TypeAlias = Sampled[TopicSource, float | None]


def _topic(
    name: str,
    help: str,
    read: Callable[[TopicSource], float | None],
    unit: str = "",
    kind: str = GAUGE,
) -> TopicMetric:
    return Sampled(Metric(name, help, unit, kind, TOPIC_LABELS), read)


def _compaction(
    name: str, help: str, read: Callable[[TopicTotals], float], unit: str = "", kind: str = GAUGE
) -> TopicMetric:
    """Declares a metric of topics that were compacted since the broker started."""

    def read_totals(source: TopicSource) -> float | None:
        return None if source.totals is None else read(source.totals)

    return _topic(name, help, read_totals, unit, kind)


def _latency(at: int) -> Callable[[TopicTotals], float]:
    return lambda totals: totals.latency_counts[at]


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _subscriptions(source: TopicSource) -> list[Stats]:
    return list(source.stats["subscriptions"].values())


TOPIC_METRICS = (
    _topic(
        "pulsar_subscriptions_count",
        "Subscriptions, including `__compaction` and readers.",
        lambda source: len(_subscriptions(source)),
    ),
    _topic(
        "pulsar_producers_count",
        "Connected producers.",
        lambda source: len(source.stats["publishers"]),
    ),
    _topic(
        "pulsar_consumers_count",
        "Connected consumers and readers.",
        lambda source: sum(len(each["consumers"]) for each in _subscriptions(source)),
    ),
    _topic(
        "pulsar_in_messages_total",
        "Published since the topic was loaded.",
        lambda source: source.stats["msgInCounter"],
        "messages",
        kind=COUNTER,
    ),
    _topic(
        "pulsar_in_bytes_total",
        "Published since the topic was loaded.",
        lambda source: source.stats["bytesInCounter"],
        "bytes",
        kind=COUNTER,
    ),
    _topic(
        "pulsar_average_msg_size",
        "Average size of the messages published since the topic was loaded.",
        lambda source: source.stats["averageMsgSize"],
        "bytes",
    ),
    _topic(
        "pulsar_storage_size",
        "Size of the raw ledgers. As in Pulsar, the compacted ledger is not included.",
        lambda source: source.stats["storageSize"],
        "bytes",
    ),
    _topic(
        "pulsar_storage_backlog_size",
        "Size of the raw data after the slowest durable cursor, including `__compaction`.",
        lambda source: source.stats["backlogSize"],
        "bytes",
    ),
    _topic(
        "pulsar_msg_backlog",
        "Total backlog of all subscriptions.",
        lambda source: sum(each["msgBacklog"] for each in _subscriptions(source)),
        "entries",
    ),
    _compaction(
        "pulsar_compaction_removed_event_count",
        "Replaced values, tombstones and dropped messages without a key, over all runs.",
        lambda totals: totals.removed_events,
        "messages",
    ),
    _compaction(
        "pulsar_compaction_succeed_count", "Runs that succeeded.", lambda totals: totals.succeeded
    ),
    _compaction(
        "pulsar_compaction_failed_count",
        "Runs that failed, were cancelled, or lost their topic.",
        lambda totals: totals.failed,
    ),
    _compaction(
        "pulsar_compaction_duration_time_in_mills",
        "Total duration of all runs.",
        lambda totals: totals.duration_ms,
        "milliseconds",
    ),
    _compaction(
        "pulsar_compaction_read_throughput",
        "Read throughput of the last successful run.",
        lambda totals: totals.read_throughput,
        "bytes per second",
    ),
    _compaction(
        "pulsar_compaction_write_throughput",
        "Write throughput of the last successful run.",
        lambda totals: totals.write_throughput,
        "bytes per second",
    ),
    *(
        _compaction(
            f"pulsar_compaction_latency_{bound}",
            "Writes to compacted ledgers by duration in ms; each is counted in one bucket.",
            _latency(at),
        )
        for at, bound in enumerate(LATENCY_BOUNDS)
    ),
    _compaction(
        "pulsar_compaction_latency_sum",
        "Total duration of writes to compacted ledgers.",
        lambda totals: totals.latency_us,
        "microseconds",
    ),
    _compaction(
        "pulsar_compaction_latency_count",
        "Writes to compacted ledgers.",
        lambda totals: sum(totals.latency_counts),
    ),
    _topic(
        "pulsar_compaction_compacted_entries_count",
        "Entries in the compacted ledger, if there is one.",
        lambda source: source.compacted_entries,
        "entries",
    ),
    _topic(
        "pulsar_compaction_compacted_entries_size",
        "Size of the compacted ledger, if there is one.",
        lambda source: source.compacted_bytes,
        "bytes",
    ),
    _topic(
        "ledgerfold_compaction_garbage_bytes",
        "Part of the compacted ledger that dead messages take.",
        lambda source: source.garbage_bytes,
        "bytes",
    ),
    _compaction(
        "ledgerfold_compaction_new_bytes_total",
        "Size of the raw segments that runs have read.",
        lambda totals: totals.bytes_new,
        "bytes",
        kind=COUNTER,
    ),
    _compaction(
        "ledgerfold_compaction_written_bytes_total",
        "Size of what runs have written. Divided by the new bytes it is the write amplification.",
        lambda totals: totals.bytes_written,
        "bytes",
        kind=COUNTER,
    ),
    _topic(
        "ledgerfold_compaction_horizon_lag_bytes",
        "Raw data after the horizon, for topics whose compaction was ever requested.",
        lambda source: source.lag_bytes,
        "bytes",
    ),
    _topic(
        "ledgerfold_compaction_horizon_lag_seconds",
        "Age of the oldest message after the horizon; 0 if there is none.",
        lambda source: _seconds(source.lag_ms),
        "seconds",
    ),
    _topic(
        "ledgerfold_compaction_seconds_since_success",
        "Time since the last successful run, even if that was before a restart.",
        lambda source: _seconds(source.since_success_ms),
        "seconds",
    ),
    _compaction(
        "ledgerfold_compaction_phase_one_seconds_total",
        "Total duration of phase one, which finds the surviving positions.",
        lambda totals: totals.phase_one_ms / 1000,
        "seconds",
        kind=COUNTER,
    ),
    _compaction(
        "ledgerfold_compaction_phase_two_seconds_total",
        "Total duration of phase two, which copies the survivors.",
        lambda totals: totals.phase_two_ms / 1000,
        "seconds",
        kind=COUNTER,
    ),
)
