"""Policies: precedence of the levels, refusal of bad values, setting and removing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.policies.effective import (
    Threshold,
    broker_policies,
    check_policies,
    deciding,
    effective_policies,
    effective_threshold,
    updated_policies,
)
from ledgerfold.broker.policies.profiles import PROFILES, in_force
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy, Policies

BROKER = broker_policies(BrokerSettings(data_dir=Path("unused")))


def test_thr_03_topic_overrides_namespace_and_broker() -> None:
    """The nearest level that sets the threshold counts, and an explicit 0 is set."""
    unset, one = Policies(), Policies(compaction_threshold_bytes=1)
    zero = Policies(compaction_threshold_bytes=0)
    assert effective_threshold(unset, unset, BROKER) == Threshold(0, "broker")
    assert effective_threshold(unset, one, BROKER) == Threshold(1, "namespace")
    assert effective_threshold(zero, one, BROKER) == Threshold(0, "topic")
    assert effective_threshold(unset, one, BROKER) == Threshold(1, "namespace")
    assert effective_threshold(unset, unset, BROKER) == Threshold(0, "broker")


def test_effective_policies_are_complete_and_merged_field_by_field() -> None:
    """Each field comes from its nearest level; none is unset."""
    topic = Policies(retention_ms=5, retain_null_key=False)
    namespace = Policies(retention_ms=7, retention_bytes=-1, retain_null_key=True)
    assert effective_policies(topic, namespace, BROKER) == Policies(
        compaction_threshold_bytes=0,
        retention_ms=5,
        retention_bytes=-1,
        message_ttl_ms=0,
        compaction_strategy=CompactionStrategy(name="publishing-order"),
        retain_null_key=False,
        schema_compatibility_strategy="SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD",
        schema_validation_enforced=False,
        allow_auto_update_schema=True,
        max_unacked_messages_per_consumer=50_000,
        max_unacked_messages_per_subscription=200_000,
        emulation=in_force(PROFILES["documented"]),
    )


@pytest.mark.parametrize(
    "policies",
    [
        Policies(compaction_threshold_bytes=-1),
        Policies(retention_ms=-2),
        Policies(retention_bytes=-2),
        Policies(message_ttl_ms=-1),
    ],
)
def test_thr_17_values_below_the_least_are_refused(policies: Policies) -> None:
    """A negative threshold is the caller's error, and the previous value stays."""
    current = Policies(compaction_threshold_bytes=10)
    with pytest.raises(InvalidRequest, match="the minimum is"):
        updated_policies(current, policies, ())
    assert current == Policies(compaction_threshold_bytes=10)


@pytest.mark.parametrize(("time_ms", "size_bytes"), [(0, 5), (5, 0), (0, -1), (-1, 0)])
def test_zero_retention_with_another_limit_is_refused(time_ms: int, size_bytes: int) -> None:
    """As Pulsar does (HTTP 400); also when the two are set one after the other."""
    time, size = Policies(retention_ms=time_ms), Policies(retention_bytes=size_bytes)
    both = Policies(retention_ms=time_ms, retention_bytes=size_bytes)
    for before, change in ((Policies(), both), (time, size)):
        with pytest.raises(InvalidRequest, match="-1"):
            updated_policies(before, change, [])


def test_no_limit_is_a_valid_retention() -> None:
    """-1 is Pulsar's way to say that raw data stay for ever."""
    check_policies(Policies(retention_ms=-1, retention_bytes=-1))


def test_thr_01_set_and_remove_change_only_their_fields() -> None:
    """An update changes only the fields that it names."""
    current = updated_policies(Policies(retention_ms=3), Policies(compaction_threshold_bytes=9), ())
    assert current == Policies(retention_ms=3, compaction_threshold_bytes=9)
    current = updated_policies(current, Policies(), ["compaction_threshold_bytes"])
    assert not current.HasField("compaction_threshold_bytes")
    assert current.retention_ms == 3


@pytest.mark.parametrize("name", ["threshold", ""])
def test_an_unknown_name_is_refused(name: str) -> None:
    """A misspelt policy is not silently nothing."""
    with pytest.raises(InvalidRequest, match="Unknown policy"):
        updated_policies(Policies(), Policies(), [name])


def test_setting_and_removing_in_one_request_is_refused() -> None:
    """The order would decide, and a message has none."""
    with pytest.raises(InvalidRequest, match="at once"):
        updated_policies(Policies(), Policies(retention_ms=1), ["retention_ms"])


def test_a_strategy_belongs_to_one_level() -> None:
    """A level's settings never mix with another level's strategy."""
    namespace = Policies(compaction_strategy=CompactionStrategy(name="keep-n", settings={"n": "3"}))
    topic = Policies(compaction_strategy=CompactionStrategy(name="newest"))
    applied = effective_policies(topic, namespace, BROKER)
    assert applied.compaction_strategy == CompactionStrategy(name="newest")
    for levels in ((topic, namespace), (Policies(), namespace), (Policies(), Policies())):
        alone = deciding("compaction_strategy", *levels, BROKER).compaction_strategy
        assert alone == effective_policies(*levels, BROKER).compaction_strategy
    inherited = effective_policies(Policies(), namespace, BROKER)
    assert inherited.compaction_strategy.settings == {"n": "3"}
    changed = updated_policies(namespace, topic, ())
    assert changed.compaction_strategy == CompactionStrategy(name="newest")
    assert updated_policies(changed, Policies(), ["compaction_strategy"]) == Policies()


def test_pulsars_strategy_names_are_accepted() -> None:
    """They are kept under Ledgerfold's names; of a user-defined name only the form can be checked
    here.
    """
    for name, kept in (("EVENT_TIME", "event-time"), ("package.module:Class", None)):
        asked = Policies(compaction_strategy=CompactionStrategy(name=name))
        assert updated_policies(Policies(), asked, ()).compaction_strategy.name == (kept or name)


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("", {}, "is not a strategy. Use publishing-order"),
        ("no name", {}, "is not a strategy"),
        ("keep-n", {}, "needs the setting 'n'"),
        ("keep-n", {"n": "0"}, "at least 1"),
        ("event-time", {"n": "1"}, "has no setting 'n'; it has none"),
    ],
)
def test_invalid_strategies_are_refused(name: str, settings: dict[str, str], why: str) -> None:
    """They are refused, and the previous one stays."""
    current = Policies(compaction_strategy=CompactionStrategy(name="newest"))
    asked = Policies(compaction_strategy=CompactionStrategy(name=name, settings=settings))
    with pytest.raises(InvalidRequest, match=why):
        updated_policies(current, asked, ())
    assert current.compaction_strategy.name == "newest"
