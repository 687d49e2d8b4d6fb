"""The settings of a topic, as in Kafka 4.1.

    >>> TOPIC_SETTINGS["segment.ms"].synonyms
    (('log.roll.ms', 1), ('log.roll.hours', 3600000))

Source: LogConfig, TopicConfig, ServerTopicConfigSynonyms of Kafka 4.1.
"""

from __future__ import annotations

from ledgerfold.broker.kafka.config.settings import LONG_MAX, Setting

MS_OF_MINUTE = 60_000
MS_OF_HOUR = 60 * MS_OF_MINUTE
_WEEK_MS = 7 * 24 * MS_OF_HOUR
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
POLICIES = ("compact", "delete")
NO_EFFECT = "Accepted as in Kafka; without effect on a log without replicas or tiers."


def _as(name: str) -> tuple[tuple[str, int], ...]:
    return ((name, 1),)


_CLEANING = [
    Setting(
        "cleanup.policy",
        "LIST",
        ("delete",),
        "compact keeps each key's latest value; delete deletes old segments; both do both.",
        one_of=POLICIES,
        synonyms=_as("log.cleanup.policy"),
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        "DOUBLE",
        0.5,
        "A log is cleaned when its dirty ratio is greater than this.",
        least=0,
        most=1,
        synonyms=_as("log.cleaner.min.cleanable.ratio"),
    ),
    Setting(
        "min.compaction.lag.ms",
        "LONG",
        0,
        "The minimum time that a record stays uncompacted.",
        least=0,
        synonyms=_as("log.cleaner.min.compaction.lag.ms"),
    ),
    Setting(
        "max.compaction.lag.ms",
        "LONG",
        LONG_MAX,
        "The maximum time that a record stays ineligible for cleaning.",
        least=1,
        synonyms=_as("log.cleaner.max.compaction.lag.ms"),
    ),
    Setting(
        "delete.retention.ms",
        "LONG",
        24 * MS_OF_HOUR,
        "How long tombstones and markers stay after the first cleaning that copies them.",
        least=0,
        synonyms=_as("log.cleaner.delete.retention.ms"),
    ),
]

_SEGMENTS = [
    Setting(
        "segment.bytes",
        "INT",
        1024 * 1024 * 1024,
        "The size at which a new segment begins.",
        least=1024 * 1024,
        synonyms=_as("log.segment.bytes"),
    ),
    Setting(
        "internal.segment.bytes",
        "INT",
        None,
        "segment.bytes without its lower bound, for tests; overrides it.",
    ),
    Setting(
        "segment.ms",
        "LONG",
        _WEEK_MS,
        "The age at which a new segment begins, at the next append.",
        least=1,
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", MS_OF_HOUR)),
    ),
    Setting(
        "segment.jitter.ms",
        "LONG",
        0,
        "The largest random reduction of segment.ms, so that logs do not roll at the same time.",
        least=0,
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", MS_OF_HOUR)),
    ),
    Setting(
        "segment.index.bytes",
        "INT",
        10 * 1024 * 1024,
        "The size of a segment's indexes at which a new segment begins.",
        least=4,
        synonyms=_as("log.index.size.max.bytes"),
    ),
    Setting(
        "index.interval.bytes",
        "INT",
        4096,
        "How many bytes of batches lie between index entries.",
        least=0,
        synonyms=_as("log.index.interval.bytes"),
    ),
    Setting(
        "file.delete.delay.ms",
        "LONG",
        60_000,
        "How long a deleted segment's file stays on the disk.",
        least=0,
        synonyms=_as("log.segment.delete.delay.ms"),
    ),
    Setting(
        "preallocate",
        "BOOLEAN",
        False,
        "Whether a segment's file has its full size from the start.",
        synonyms=_as("log.preallocate"),
    ),
]

_RETENTION = [
    Setting(
        "retention.ms",
        "LONG",
        _WEEK_MS,
        "With the policy delete: the age at which segments are deleted. -1: never.",
        least=-1,
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MS_OF_MINUTE),
            ("log.retention.hours", MS_OF_HOUR),
        ),
    ),
    Setting(
        "retention.bytes",
        "LONG",
        -1,
        "With the policy delete: the log size above which segments are deleted. -1: no limit.",
        synonyms=_as("log.retention.bytes"),
    ),
]

_RECORDS = [
    Setting(
        "max.message.bytes",
        "INT",
        1024 * 1024 + 12,
        "The largest record batch accepted, as received.",
        least=0,
        synonyms=_as("message.max.bytes"),
    ),
    Setting(
        "compression.type",
        "STRING",
        "producer",
        "How batches are compressed; producer: as the producer sent them.",
        one_of=CODECS,
        synonyms=_as("compression.type"),
    ),
    Setting(
        "compression.gzip.level",
        "INT",
        -1,
        "The level where compression.type is gzip.",
        least=1,
        most=9,
        or_else=-1,
        synonyms=_as("compression.gzip.level"),
    ),
    Setting(
        "compression.lz4.level",
        "INT",
        9,
        "The level where compression.type is lz4.",
        least=1,
        most=17,
        synonyms=_as("compression.lz4.level"),
    ),
    Setting(
        "compression.zstd.level",
        "INT",
        3,
        "The level where compression.type is zstd.",
        least=-131072,
        most=22,
        synonyms=_as("compression.zstd.level"),
    ),
    Setting(
        "message.timestamp.type",
        "STRING",
        "CreateTime",
        "The timestamp of records: set by the producer, or by the broker at the append.",
        one_of=TIMESTAMP_TYPES,
        synonyms=_as("log.message.timestamp.type"),
    ),
    Setting(
        "message.timestamp.before.max.ms",
        "LONG",
        LONG_MAX,
        "How far a record's timestamp may be before the broker's.",
        least=0,
        synonyms=_as("log.message.timestamp.before.max.ms"),
    ),
    Setting(
        "message.timestamp.after.max.ms",
        "LONG",
        MS_OF_HOUR,
        "How far a record's timestamp may be ahead of the broker's.",
        least=0,
        synonyms=_as("log.message.timestamp.after.max.ms"),
    ),
]

# Known so that a real cluster's settings are accepted, but without effect on a single log.
_WITHOUT_EFFECT = [
    Setting(
        "flush.messages",
        "LONG",
        LONG_MAX,
        "Every append is synced before it is acknowledged here.",
        least=1,
        synonyms=_as("log.flush.interval.messages"),
    ),
    Setting(
        "flush.ms",
        "LONG",
        LONG_MAX,
        "Every append is synced before it is acknowledged here.",
        least=0,
        synonyms=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    ),
    Setting(
        "min.insync.replicas",
        "INT",
        1,
        NO_EFFECT,
        least=1,
        synonyms=_as("min.insync.replicas"),
    ),
    Setting(
        "unclean.leader.election.enable",
        "BOOLEAN",
        False,
        NO_EFFECT,
        synonyms=_as("unclean.leader.election.enable"),
    ),
    # True is refused (broker/kafka/config/config.py).
    Setting("remote.storage.enable", "BOOLEAN", False, NO_EFFECT),
    Setting("remote.log.copy.disable", "BOOLEAN", False, NO_EFFECT),
    Setting("remote.log.delete.on.disable", "BOOLEAN", False, NO_EFFECT),
    Setting(
        "local.retention.ms",
        "LONG",
        -2,
        NO_EFFECT,
        least=-2,
        synonyms=_as("log.local.retention.ms"),
    ),
    Setting(
        "local.retention.bytes",
        "LONG",
        -2,
        NO_EFFECT,
        least=-2,
        synonyms=_as("log.local.retention.bytes"),
    ),
]

TOPIC_SETTINGS: dict[str, Setting] = {
    each.name: each for each in (*_CLEANING, *_SEGMENTS, *_RETENTION, *_RECORDS, *_WITHOUT_EFFECT)
}
