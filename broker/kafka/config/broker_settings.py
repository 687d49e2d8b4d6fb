"""Every setting of a broker that has to do with its logs, as Kafka 4.1 knows them.

Those that stand behind a topic's setting are made of it: their names, and where theirs differ,
their bounds and defaults.

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

# Those that say something else than the topic's setting does.
_OF_THEIR_OWN = {
    each.name: each
    for each in (
        Setting("log.roll.ms", "LONG", None, "The age at which a new segment begins.", "ms"),
        Setting(
            "log.roll.hours",
            "INT",
            168,
            "The age at which a new segment begins, where log.roll.ms is not set.",
            "hours",
            least=1,
            is_dynamic=False,
        ),
        Setting(
            "log.roll.jitter.ms",
            "LONG",
            None,
            "The most that chance takes away from a segment's age.",
            "ms",
        ),
        Setting(
            "log.roll.jitter.hours",
            "INT",
            0,
            "The same in hours, where log.roll.jitter.ms is not set.",
            "hours",
            least=0,
            is_dynamic=False,
        ),
        Setting(
            "log.retention.ms",
            "LONG",
            None,
            "With the policy delete: the age at which segments go. -1: never.",
            "ms",
        ),
        Setting(
            "log.retention.minutes",
            "INT",
            None,
            "The same in minutes, where log.retention.ms is not set.",
            "minutes",
            is_dynamic=False,
        ),
        Setting(
            "log.retention.hours",
            "INT",
            168,
            "The same in hours, where neither of them is set.",
            "hours",
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

_OF_THE_BROKER = [
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
        "Memory for the offset maps of all threads: bounds the keys of one round.",
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
        "ms",
        least=0,
    ),
    Setting(
        "log.retention.check.interval.ms",
        "LONG",
        5 * MS_OF_MINUTE,
        "How often logs that are not compacted are looked at for old segments.",
        "ms",
        least=1,
        is_dynamic=False,
    ),
    Setting(
        "producer.id.expiration.ms",
        "INT",
        24 * MS_OF_HOUR,
        "How long a producer that writes nothing is remembered, after its last record's time.",
        "ms",
        least=1,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        "INT",
        10 * MS_OF_MINUTE,
        "How often producers are looked at for that.",
        "ms",
        least=1,
        is_dynamic=False,
    ),
]


def _behind_topics() -> Iterator[Setting]:
    """The topic's own, under the broker's name."""
    for setting in TOPIC_SETTINGS.values():
        for name, _ in setting.synonyms:
            own = _OF_THEIR_OWN.get(name)
            yield own or replace(setting, name=name, synonyms=())


BROKER_SETTINGS: dict[str, Setting] = {
    each.name: each for each in (*_behind_topics(), *_OF_THE_BROKER)
}
