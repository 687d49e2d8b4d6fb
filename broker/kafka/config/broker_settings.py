"""The settings of a broker that concern its logs, as in Kafka 4.1.

The broker's defaults of topic settings are derived from the topic settings (topic_settings.py),
with the broker's names and, where they differ, its bounds and defaults.

    >>> BROKER_SETTINGS["log.roll.hours"].unit, BROKER_SETTINGS["log.roll.hours"].is_dynamic
    ('hours', False)
    >>> BROKER_SETTINGS["log.cleaner.threads"].default
    1

Source: KafkaConfig, ServerLogConfigs, CleanerConfig and DynamicBrokerConfig of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from sys import float_info

from ledgerfold.broker.kafka.config.settings import Setting
from ledgerfold.broker.kafka.config.topic_settings import MS_OF_HOUR, MS_OF_MINUTE, TOPIC_SETTINGS

DEDUPE_BYTES_LEAST = 1024 * 1024

# Settings that differ from the topic's.
_DIFFERENT = {
    each.name: each
    for each in (
        Setting("log.roll.ms", "LONG", None, "The age at which a new segment begins."),
        Setting(
            "log.roll.hours",
            "INT",
            168,
            "The age at which a new segment begins, where log.roll.ms is not set.",
            least=1,
            is_dynamic=False,
        ),
        Setting(
            "log.roll.jitter.ms", "LONG", None, "The largest random reduction of a segment's age."
        ),
        Setting(
            "log.roll.jitter.hours",
            "INT",
            0,
            "The same in hours, where log.roll.jitter.ms is not set.",
            least=0,
            is_dynamic=False,
        ),
        Setting(
            "log.retention.ms",
            "LONG",
            None,
            "With the policy delete: the age at which segments are deleted. -1: never.",
        ),
        Setting(
            "log.retention.minutes",
            "INT",
            None,
            "The same in minutes, where log.retention.ms is not set.",
            is_dynamic=False,
        ),
        Setting(
            "log.retention.hours",
            "INT",
            168,
            "The same in hours, where neither of these is set.",
            is_dynamic=False,
        ),
        replace(TOPIC_SETTINGS["flush.ms"], name="log.flush.interval.ms", default=None, least=None),
        replace(
            TOPIC_SETTINGS["flush.ms"],
            name="log.flush.scheduler.interval.ms",
            least=None,
            is_dynamic=False,
        ),
    )
}

_BROKER_ONLY = [
    Setting(
        "log.cleaner.enable",
        "BOOLEAN",
        True,
        "Whether compacted topics are cleaned at all.",
        is_dynamic=False,
    ),
    Setting("log.cleaner.threads", "INT", 1, "How many logs are cleaned at a time.", least=0),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        "LONG",
        128 * 1024 * 1024,
        "Memory for the offset maps of all threads: bounds the keys of one cleaning.",
        "bytes",
    ),
    Setting(
        "log.cleaner.io.buffer.size",
        "INT",
        512 * 1024,
        "Memory for reading and writing of all threads.",
        "bytes",
        least=0,
    ),
    Setting(
        "log.cleaner.io.buffer.load.factor",
        "DOUBLE",
        0.9,
        "How full an offset map may become: a share of its slots.",
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        "DOUBLE",
        float_info.max,
        "The most that cleaning reads and writes, together, on average.",
        "bytes/s",
    ),
    Setting(
        "log.cleaner.backoff.ms",
        "LONG",
        15_000,
        "How long the cleaner sleeps when there is nothing to clean.",
        least=0,
    ),
    Setting(
        "log.retention.check.interval.ms",
        "LONG",
        5 * MS_OF_MINUTE,
        "How often logs that are not compacted are checked for old segments.",
        least=1,
        is_dynamic=False,
    ),
    Setting(
        "producer.id.expiration.ms",
        "INT",
        24 * MS_OF_HOUR,
        "How long an idle producer is kept, after its last record's time.",
        least=1,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        "INT",
        10 * MS_OF_MINUTE,
        "How often producers are checked for expiration.",
        least=1,
        is_dynamic=False,
    ),
]


def _topic_defaults() -> Iterator[Setting]:
    """Yields the broker's settings that are defaults of topic settings."""
    for setting in TOPIC_SETTINGS.values():
        for name, _ in setting.synonyms:
            own = _DIFFERENT.get(name)
            yield own or replace(setting, name=name, synonyms=())


BROKER_SETTINGS: dict[str, Setting] = {
    each.name: each for each in (*_topic_defaults(), *_BROKER_ONLY)
}
