"""Compares settings with Kafka 4.1.0's answers to the same texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.kafka.config.broker_settings import BROKER_SETTINGS
from ledgerfold.broker.kafka.config.config import BrokerConfig, LogConfig, check_thread_change
from ledgerfold.broker.kafka.config.settings import INT_MAX, LONG_MAX, text_of
from ledgerfold.broker.kafka.config.topic_settings import TOPIC_SETTINGS
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind


def refusal(given: dict[str, str], of: type[BrokerConfig] | type[LogConfig]) -> tuple[str, str]:
    with pytest.raises(KafkaError) as caught:
        of.of(given)
    assert caught.value.kind is KafkaErrorKind.INVALID_CONFIG
    return caught.value.kafka_class, str(caught.value)


INT, LONG = "Not a number of type INT", "Not a number of type LONG"
BOOLEAN = "Expected value to be either true or false"


@pytest.mark.parametrize(
    ("name", "text", "shown", "why"),
    [
        ("cleanup.policy", "Compact", "Compact", "String must be one of: compact, delete"),
        ("cleanup.policy", "compact,", "", "String must be one of: compact, delete"),
        ("segment.bytes", "+7", "7", "Value must be at least 1048576"),
        ("segment.bytes", " 1_000", " 1_000", INT),
        ("segment.bytes", "2147483648", "2147483648", INT),
        ("segment.ms", "0", "0", "Value must be at least 1"),
        ("segment.ms", "1e3", "1e3", LONG),
        ("segment.ms", "9223372036854775808", "9223372036854775808", LONG),
        ("segment.index.bytes", "3", "3", "Value must be at least 4"),
        ("retention.ms", "-2", "-2", "Value must be at least -1"),
        ("min.cleanable.dirty.ratio", "1.01", "1.01", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-1", "-1.0", "Value must be at least 0"),
        (
            "min.cleanable.dirty.ratio",
            "2147483647",
            "2.147483647E9",
            "Value must be no more than 1",
        ),
        ("min.cleanable.dirty.ratio", "\u0663", "\u0663", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "0x10", "0x10", "Not a number of type DOUBLE"),
        ("preallocate", " no ", " no ", BOOLEAN),
        ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "18", "Value must be no more than 17"),
        (
            "compression.type",
            "GZIP",
            "GZIP",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "message.timestamp.type",
            "createtime",
            "createtime",
            "String must be one of: CreateTime, LogAppendTime",
        ),
    ],
)
def test_settings_that_kafka_rejects(name: str, text: str, shown: str, why: str) -> None:
    expected = ("ConfigException", f"Invalid value {shown} for configuration {name}: {why}")
    assert refusal({name: text}, LogConfig) == expected


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "compact,compact", ("compact", "compact")),
        ("cleanup.policy", " ", ()),
        ("segment.ms", " +7 ", 7),
        ("retention.bytes", "-5", -5),
        ("min.cleanable.dirty.ratio", "0.5f", 0.5),
        ("preallocate", "TRUE", True),
        ("compression.zstd.level", "-131072", -131072),
    ],
)
def test_settings_that_kafka_accepts(name: str, text: str, value: object) -> None:
    assert LogConfig.of({name: text}).values[name] == value


def test_not_a_number_is_a_valid_ratio_as_in_kafka() -> None:
    ratio = LogConfig.of({"min.cleanable.dirty.ratio": "NaN"}).min_cleanable_ratio
    assert ratio != ratio


def test_an_unknown_setting_of_a_topic_is_refused() -> None:
    expected = ("InvalidConfigurationException", "Unknown topic config name: retention")
    assert refusal({"retention": "1"}, LogConfig) == expected


def test_t22_conflicting_lags() -> None:
    lags = {"min.compaction.lag.ms": "200", "max.compaction.lag.ms": "100"}
    assert refusal(lags, LogConfig) == (
        "InvalidConfigurationException",
        "conflict topic config setting min.compaction.lag.ms (200) > max.compaction.lag.ms (100)",
    )
    assert LogConfig.of(lags | {"max.compaction.lag.ms": "200"}).max_compaction_lag_ms == 200
    broker = BrokerConfig.of({"log.cleaner.max.compaction.lag.ms": "100"})
    with pytest.raises(KafkaError, match="conflict topic config setting"):
        LogConfig.of({"min.compaction.lag.ms": "200"}, broker)


def test_tiered_storage_is_refused() -> None:
    said = refusal({"remote.storage.enable": "true"}, LogConfig)[1]
    assert said.startswith("Tiered Storage functionality is disabled in the broker.")
    assert LogConfig.of({"remote.storage.enable": "false"}).sources["remote.storage.enable"]


def test_defaults_of_a_topic() -> None:
    config = LogConfig.of({})
    assert set(config.sources.values()) == {"default"}
    assert (config.is_compacted, config.is_deleted) == (False, True)
    assert (config.segment_bytes, config.segment_ms) == (1 << 30, 604_800_000)
    assert config.roll_ms == config.segment_ms
    assert (config.min_cleanable_ratio, config.delete_retention_ms) == (0.5, 86_400_000)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (0, LONG_MAX)
    assert (config.retention_ms, config.retention_bytes) == (604_800_000, -1)
    assert (config.segment_index_bytes, config.index_interval_bytes) == (10_485_760, 4096)
    assert config.max_message_bytes == 1_048_588
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (LONG_MAX, 3_600_000)
    assert (config.compression_type, config.is_dated_at_append) == ("producer", False)


def test_the_default_of_a_topic_is_that_of_a_default_broker() -> None:
    assert LogConfig.of({}, BrokerConfig.of({})) == LogConfig.of({})


@pytest.mark.parametrize(
    ("broker", "name", "value", "source"),
    [
        ({"log.roll.hours": "2"}, "segment.ms", 7_200_000, "log.roll.hours"),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment.ms", 5, "log.roll.ms"),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", 3_600_000, "log.roll.jitter.hours"),
        ({"log.retention.hours": "1"}, "retention.ms", 3_600_000, "log.retention.hours"),
        (
            {"log.retention.hours": "1", "log.retention.minutes": "2"},
            "retention.ms",
            120_000,
            "log.retention.minutes",
        ),
        ({"log.retention.hours": "-2"}, "retention.ms", -1, "log.retention.hours"),
        (
            {"log.cleanup.policy": "compact"},
            "cleanup.policy",
            ("compact",),
            "log.cleanup.policy",
        ),
        ({"message.max.bytes": "9"}, "max.message.bytes", 9, "message.max.bytes"),
    ],
)
def test_topics_inherit_settings_of_the_broker(
    broker: dict[str, str], name: str, value: object, source: str
) -> None:
    below = BrokerConfig.of(broker)
    config = LogConfig.of({}, below)
    assert (config.values[name], config.sources[name]) == (value, source)
    own = {name: text_of(TOPIC_SETTINGS[name].default or 0)}
    assert LogConfig.of(own, below).sources[name] == "topic"


def test_a_boolean_setting_of_the_broker_is_shown_as_a_boolean() -> None:
    """Python takes it for a number, which may be multiplied."""
    value = LogConfig.of({}, BrokerConfig.of({"log.preallocate": "true"})).values["preallocate"]
    assert value is not None
    assert text_of(value) == "true"


def test_compacted_topics_roll_by_the_maximum_lag() -> None:
    lag = {"max.compaction.lag.ms": "60000"}
    assert LogConfig.of(lag).roll_ms == 604_800_000
    assert LogConfig.of(lag | {"cleanup.policy": "compact"}).roll_ms == 60_000


def test_internal_segment_bytes_overrides_segment_bytes() -> None:
    assert LogConfig.of({"internal.segment.bytes": "100"}).segment_bytes == 100


@given(st.integers(0, INT_MAX), st.integers(0, 10**6), st.integers(1, 10**6))
def test_jitter_is_below_both_limits(drawn: int, jitter_ms: int, segment_ms: int) -> None:
    config = LogConfig.of({"segment.jitter.ms": str(jitter_ms), "segment.ms": str(segment_ms)})
    jitter = config.roll_jitter_ms(drawn)
    assert 0 <= jitter < max(1, min(jitter_ms, segment_ms))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        (
            {"log.retention.minutes": "0"},
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097152"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
    ],
)
def test_settings_with_which_a_broker_does_not_start(settings: dict[str, str], text: str) -> None:
    expected = ("IllegalArgumentException", f"requirement failed: {text}")
    assert refusal(settings, BrokerConfig) == expected


def test_settings_with_which_a_broker_starts() -> None:
    BrokerConfig.of({"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097154"})
    config = BrokerConfig.of({"broker.id": "1", "log.retention.ms": "-2"})
    assert config.ignored == ("broker.id",)
    assert refusal({"log.cleaner.threads": "0"}, BrokerConfig) == (
        "ConfigException",
        "Log cleaner threads should be at least 1",
    )


def test_t24_keys_of_an_offset_map() -> None:
    assert BrokerConfig.of({}).map_keys_max == 5_033_164
    four = {"log.cleaner.threads": "4", "log.cleaner.io.buffer.load.factor": "1"}
    assert BrokerConfig.of(four).map_keys_max == 134_217_728 // 4 // 24


def test_t103_thread_count_changes() -> None:
    four = BrokerConfig.of({"log.cleaner.threads": "4"})
    for refused, why in [
        ("1", "cannot be reduced to less than half the current value 4"),
        ("9", "cannot be increased to more than double the current value 4"),
        ("0", "should be at least 1"),
    ]:
        with pytest.raises(KafkaError) as caught:
            four.changed({"log.cleaner.threads": refused})
        assert str(caught.value) == f"Log cleaner threads {why}"
        assert caught.value.kafka_class == "ConfigException"
    for taken in ("2", "8"):
        assert four.changed({"log.cleaner.threads": taken}).texts["log.cleaner.threads"] == taken
    check_thread_change(3, 1)
    check_thread_change(5, 2)


def test_settings_that_a_running_broker_can_change() -> None:
    config = BrokerConfig.of({"log.cleaner.backoff.ms": "5"})
    assert config.number("log.cleaner.backoff.ms") == 5
    back = config.changed({"log.cleaner.backoff.ms": None})
    assert back.number("log.cleaner.backoff.ms") == 15_000
    with pytest.raises(KafkaError) as caught:
        config.changed({"log.cleaner.enable": "false", "log.roll.hours": "1"})
    assert str(caught.value) == (
        "Cannot update these configs dynamically: Set(log.cleaner.enable, log.roll.hours)"
    )
    assert config.changed({"num.io.threads": "1"}).ignored == ("num.io.threads",)


@pytest.mark.parametrize("setting", [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()])
def test_every_default_can_be_parsed(setting: object) -> None:
    assert isinstance(setting, type(TOPIC_SETTINGS["segment.ms"]))
    assert setting.doc.endswith(".")
    if setting.default is not None:
        assert setting.parse(text_of(setting.default)) == setting.default


@given(st.floats())
def test_printed_numbers_can_be_parsed(number: float) -> None:
    setting = TOPIC_SETTINGS["min.cleanable.dirty.ratio"]
    shown = text_of(number)
    assert setting.kind == "DOUBLE"
    free = type(setting)("any", "DOUBLE", None, "Any.")
    back = free.parse(shown)
    assert back == number or back != back


@pytest.mark.parametrize(
    ("factor", "keys"),
    [
        ("NaN", 0),
        ("Infinity", INT_MAX),
        ("1e300", INT_MAX),
        ("-Infinity", -INT_MAX - 1),
        ("0.5", 2_796_202),
    ],
)
def test_the_keys_of_a_map_are_converted_as_in_java(factor: str, keys: int) -> None:
    """Tests had only finite settings, and a thread ended at any other one."""
    given = {"log.cleaner.io.buffer.load.factor": factor}
    assert BrokerConfig.of(given).map_keys_max == keys
