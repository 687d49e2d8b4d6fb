"""The settings that `what-if` tries on a Kafka topic, for a replay.

    >>> own, broker = {"cleanup.policy": "compact"}, BrokerConfig.of({})
    >>> trial = CleaningTrial(config={"min.cleanable.dirty.ratio": "0.1"})
    >>> settings_of(trial, "t", own, broker).min_cleanable_ratio
    0.1

A trial may set settings of the topic or broker that affect the cleaner; others are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledgerfold.broker.kafka.config.broker_settings import BROKER_SETTINGS
from ledgerfold.broker.kafka.config.config import BrokerConfig, LogConfig
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.compactor_pb2 import CleanerSettings
from ledgerfold.v1.what_if_pb2 import CleaningTrial

TRIALS_MAX = 24
OF_TOPIC = (
    "cleanup.policy",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
    "segment.bytes",
    "internal.segment.bytes",
    "segment.ms",
    "segment.index.bytes",
    "index.interval.bytes",
    "retention.ms",
    "retention.bytes",
)
OF_BROKER = (
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.threads",
    "producer.id.expiration.ms",
)


def check_count(combinations: int) -> None:
    """Raises InvalidRequest if there are too many combinations."""
    if combinations > TRIALS_MAX:
        raise InvalidRequest(
            f"These are {combinations} combinations of settings. Try at most {TRIALS_MAX} at once."
        )


def check_trials(trials: Sequence[CleaningTrial]) -> None:
    """Raises InvalidRequest if there are too many trials, or one has other settings."""
    check_count(len(trials))
    for trial in trials:
        for name in trial.config:
            if name not in OF_TOPIC + OF_BROKER:
                known = ", ".join(OF_TOPIC + OF_BROKER)
                raise InvalidRequest(
                    f"{name} does not affect the cleaner, or is not a setting of Kafka's. Try one "
                    f"of: {known}."
                )


def settings_of(
    trial: CleaningTrial, topic: str, own: Mapping[str, str], broker: BrokerConfig
) -> CleanerSettings:
    """Returns the trial's settings. `own`: the topic's. Raises KafkaError as a change does,
    InvalidRequest.
    """
    of_broker = {name: text for name, text in trial.config.items() if name in BROKER_SETTINGS}
    tried = {name: text for name, text in trial.config.items() if name not in BROKER_SETTINGS}
    broker_config = BrokerConfig.of({**broker.texts, **of_broker})
    merged = {**own, **tried}
    if "segment.bytes" in tried and "internal.segment.bytes" not in tried:
        # The topic's internal.segment.bytes would take precedence.
        merged.pop("internal.segment.bytes", None)
    config = LogConfig.of(merged, broker_config)
    if not config.is_compacted:
        raise InvalidRequest(
            f"{topic} is not compacted: the cleaner ignores it. Try it with --config "
            "cleanup.policy=compact."
        )
    return CleanerSettings(
        trial=trial,
        is_deleted=config.is_deleted,
        min_cleanable_ratio=config.min_cleanable_ratio,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        roll_ms=config.roll_ms,
        index_bytes_max=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        backoff_ms=broker_config.number("log.cleaner.backoff.ms"),
        keys_max=broker_config.map_keys_max,
        producer_expiration_ms=broker_config.number("producer.id.expiration.ms"),
    )
