"""The effective settings of a topic: its own, else its broker's, else Kafka's defaults.

    >>> broker = BrokerConfig.of({"log.roll.hours": "1", "listeners": "PLAINTEXT://:9092"})
    >>> topic = {"cleanup.policy": "compact", "max.compaction.lag.ms": "60000"}
    >>> config = LogConfig.of(topic, broker)
    >>> config.is_compacted, config.segment_ms, config.roll_ms
    (True, 3600000, 60000)
    >>> config.sources["segment.ms"], broker.ignored
    ('log.roll.hours', ('listeners',))

An unknown topic setting is refused; an unknown broker setting is ignored, because a broker's file
also has settings that are not about logs.

Source: LogConfig (validate, maxSegmentMs, randomSegmentJitter), KafkaConfig (validateValues,
extractLogConfigMap), LogCleaner.validateReconfiguration and DynamicBrokerConfig of Kafka 4.1.
`log.cleaner.threads=0` is a division by zero in Kafka at start; here it is refused with Kafka's
message for a running broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import NamedTuple, TypeVar

from ledgerfold.broker.kafka.config.broker_settings import BROKER_SETTINGS, DEDUPE_BYTES_LEAST
from ledgerfold.broker.kafka.config.settings import INT_MAX, Setting, Value, invalid_config
from ledgerfold.broker.kafka.config.topic_settings import TOPIC_SETTINGS
from ledgerfold.storage.errors import KafkaError

T = TypeVar("T")
DEFAULT = "default"
TOPIC = "topic"
# An MD5 hash and an offset.
_MAP_ENTRY_BYTES = 16 + 8


def _typed(value: object, kind: type[T]) -> T:
    assert isinstance(value, kind)
    return value


@dataclass(frozen=True)
class BrokerConfig:
    """A broker's settings, validated. `texts`: the settings that were set, as text."""

    texts: Mapping[str, str]
    values: Mapping[str, Value]
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> BrokerConfig:
        known = {name: text for name, text in texts.items() if name in BROKER_SETTINGS}
        values = {name: BROKER_SETTINGS[name].parse(text) for name, text in known.items()}
        config = cls(known, values, tuple(name for name in texts if name not in known))
        config._check()
        return config

    def __getitem__(self, name: str) -> Value | None:
        """Returns the value that is set, or the default."""
        return self.values.get(name, BROKER_SETTINGS[name].default)

    def number(self, name: str) -> int:
        return _typed(self[name], int)

    def share(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, int | float)
        return float(value)

    @property
    def map_slots(self) -> int:
        """The number of slots in one thread's offset map."""
        threads = self.number("log.cleaner.threads")
        memory = min(self.number("log.cleaner.dedupe.buffer.size") // threads, INT_MAX)
        return memory // _MAP_ENTRY_BYTES

    @property
    def map_keys_max(self) -> int:
        """The number of keys that one thread's offset map takes."""
        keys = self.map_slots * self.share("log.cleaner.io.buffer.load.factor")
        # As Java converts a double.
        return 0 if isnan(keys) else int(max(-INT_MAX - 1, min(keys, INT_MAX)))

    def changed(self, texts: Mapping[str, str | None]) -> BrokerConfig:
        """Returns the settings after a change at run time; `None` unsets one. Refuses what Kafka
        refuses.
        """
        fixed = [each for each in texts if each in BROKER_SETTINGS and not _is_dynamic(each)]
        if fixed:
            names = ", ".join(fixed)
            raise invalid_config(f"Cannot update these configs dynamically: Set({names})")
        merged = {**self.texts, **texts}
        new = {name: text for name, text in merged.items() if text is not None}
        if "log.cleaner.threads" in texts:
            text = new.get("log.cleaner.threads", "1")
            threads = BROKER_SETTINGS["log.cleaner.threads"].parse(text)
            assert isinstance(threads, int)
            check_thread_change(self.number("log.cleaner.threads"), threads)
        return BrokerConfig.of(new)

    def _check(self) -> None:
        """Validates as KafkaConfig.validateValues does for logs, in its order."""
        _require_least(self, "log.roll.ms", 1)
        _require_least(self, "log.roll.jitter.ms", 0)
        if _retention_ms(self.values) == 0:
            raise _requirement(
                "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
            )
        threads = self.number("log.cleaner.threads")
        if threads < 1:
            raise invalid_config("Log cleaner threads should be at least 1")
        if self.number("log.cleaner.dedupe.buffer.size") // threads <= DEDUPE_BYTES_LEAST:
            raise _requirement(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
            )


def _number(name: str) -> cached_property[int]:
    """Declares the attribute of a topic setting that is a number."""
    return cached_property(lambda config: config.number(name))


@dataclass(frozen=True)
class LogConfig:
    """The effective settings of a topic. `sources`: "topic", a broker setting's name, or "default".

    Lookups are cached, because each append uses some.
    """

    values: Mapping[str, Value | None]
    sources: Mapping[str, str]

    min_compaction_lag_ms = _number("min.compaction.lag.ms")
    max_compaction_lag_ms = _number("max.compaction.lag.ms")
    delete_retention_ms = _number("delete.retention.ms")
    segment_ms = _number("segment.ms")
    segment_index_bytes = _number("segment.index.bytes")
    index_interval_bytes = _number("index.interval.bytes")
    retention_ms = _number("retention.ms")
    retention_bytes = _number("retention.bytes")
    max_message_bytes = _number("max.message.bytes")
    timestamp_before_max_ms = _number("message.timestamp.before.max.ms")
    timestamp_after_max_ms = _number("message.timestamp.after.max.ms")

    @classmethod
    def of(cls, topic: Mapping[str, str], broker: BrokerConfig | None = None) -> LogConfig:
        """Returns the settings of a topic that is created or changed. Raises KafkaError."""
        config = cls.existing(topic, broker)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise invalid_config(
                f"conflict topic config setting min.compaction.lag.ms "
                f"({config.min_compaction_lag_ms}) > max.compaction.lag.ms "
                f"({config.max_compaction_lag_ms})",
                "InvalidConfigurationException",
            )
        if config.values["remote.storage.enable"]:
            raise invalid_config(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be "
                "configured with remote log storage."
            )
        return config

    @classmethod
    def existing(cls, topic: Mapping[str, str], broker: BrokerConfig | None) -> LogConfig:
        """Returns the settings of an existing topic; they are valid with any settings of its
        broker, as in Kafka.
        """
        for name in topic:
            if name not in TOPIC_SETTINGS:
                raise invalid_config(
                    f"Unknown topic config name: {name}", "InvalidConfigurationException"
                )
        values: dict[str, Value | None] = {}
        sources = {}
        for name, setting in TOPIC_SETTINGS.items():
            if name in topic:
                values[name], sources[name] = setting.parse(topic[name]), TOPIC
            else:
                values[name], sources[name] = _of_broker(setting, broker)
        return cls(values, sources)

    @classmethod
    def changed(
        cls, own: Mapping[str, str], changes: Mapping[str, str | None], broker: BrokerConfig
    ) -> dict[str, str]:
        """Returns a topic's own settings after a change; None unsets one. Raises KafkaError."""
        merged = {**own, **changes}
        values = {name: text for name, text in merged.items() if text is not None}
        cls.of(values, broker)
        return values

    def number(self, name: str) -> int:
        return _typed(self.values[name], int)

    def word(self, name: str) -> str:
        return _typed(self.values[name], str)

    @cached_property
    def policies(self) -> tuple[str, ...]:
        return _typed(self.values["cleanup.policy"], tuple)

    @cached_property
    def is_compacted(self) -> bool:
        return "compact" in self.policies

    @cached_property
    def is_deleted(self) -> bool:
        """True if old segments are deleted by age and size."""
        return "delete" in self.policies

    @cached_property
    def min_cleanable_ratio(self) -> float:
        return _typed(self.values["min.cleanable.dirty.ratio"], float)

    @cached_property
    def segment_bytes(self) -> int:
        own = self.values["internal.segment.bytes"]
        return own if isinstance(own, int) else self.number("segment.bytes")

    @cached_property
    def roll_ms(self) -> int:
        """The age at which a segment rolls: at most max.compaction.lag.ms under compaction."""
        if not self.is_compacted:
            return self.segment_ms
        return min(self.segment_ms, self.max_compaction_lag_ms)

    def roll_jitter_ms(self, random_number: int) -> int:
        """Returns a segment's share of segment.jitter.ms. `random_number`: at least 0."""
        most = min(self.number("segment.jitter.ms"), self.segment_ms)
        return random_number % most if most else 0

    @cached_property
    def compression_type(self) -> str:
        return self.word("compression.type")

    @cached_property
    def is_dated_at_append(self) -> bool:
        return self.word("message.timestamp.type") == "LogAppendTime"


def check_thread_change(current: int, requested: int) -> None:
    """Checks how far the number of threads changes at once. Raises KafkaError."""
    if requested < 1:
        raise invalid_config("Log cleaner threads should be at least 1")
    if requested < current // 2:
        raise invalid_config(
            f"Log cleaner threads cannot be reduced to less than half the current value {current}"
        )
    if requested > current * 2:
        raise invalid_config(
            f"Log cleaner threads cannot be increased to more than double the current value "
            f"{current}"
        )


def _is_dynamic(name: str) -> bool:
    return BROKER_SETTINGS[name].is_dynamic


def _of_broker(setting: Setting, broker: BrokerConfig | None) -> tuple[Value | None, str]:
    """Returns the broker's default for a topic setting: the first of its synonyms that is set
    counts.
    """
    for name, factor in setting.synonyms if broker else ():
        value = broker.values.get(name) if broker else None
        if value is None:
            continue
        if setting.name == "retention.ms":
            assert isinstance(value, int)
            return max(-1, value * factor), name
        return (value * factor if isinstance(value, int) and factor > 1 else value), name
    return setting.default, DEFAULT


def _retention_ms(values: Mapping[str, Value]) -> Value | None:
    return _of_broker(TOPIC_SETTINGS["retention.ms"], BrokerConfig({}, values))[0]


def _require_least(config: BrokerConfig, name: str, least: int) -> None:
    value = config[name]
    if isinstance(value, int) and value < least:
        raise _requirement(f"{name} must be greater than or equal to {least}")


def _requirement(text: str) -> KafkaError:
    return invalid_config(f"requirement failed: {text}", "IllegalArgumentException")


class Defects(NamedTuple):
    """The enabled defects of Kafka 4.1.0 (docs/PROFILES.md), named as the profile's fields
    (broker/policies/profiles.py).
    """

    map_reopens_aborted: bool = False
    full_index_fails_round: bool = False
    gauges_with_defects: bool = False
    resends_by_record_time: bool = False


NO_DEFECTS = Defects()
