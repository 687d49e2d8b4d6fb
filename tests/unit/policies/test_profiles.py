"""Profiles: the effective value, the order of levels, and the table for users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledgerfold.broker.policies.effective import effective_policies, updated_policies
from ledgerfold.broker.policies.profiles import (
    DOCUMENTED,
    FIELDS,
    KAFKA_4_1,
    PROFILES,
    PULSAR_4,
    RULES,
    Emulation,
    changes_of,
    emulation,
    in_force,
    parse_policies,
    parse_settings,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import Emulation as Settings
from ledgerfold.v1.records_pb2 import Policies

TABLE = Path(__file__).parents[3] / "docs" / "PROFILES.md"


def test_the_default_is_the_documented_profile() -> None:
    assert emulation(Settings(), Settings()) == PROFILES[DOCUMENTED] == Emulation()


def test_a_profile_resets_the_fields_of_lower_levels() -> None:
    """The namespace's profile hides the broker's single fields; its fields count."""
    broker = Settings(profile=PULSAR_4, exact_backlog=True)
    namespace = Settings(profile=PULSAR_4, partitioned_status=True)
    values = emulation(broker, namespace)
    assert (values.exact_backlog, values.partitioned_status) == (False, True)


def test_single_fields_override_the_lower_level() -> None:
    values = emulation(Settings(profile=PULSAR_4), Settings(exact_backlog=True))
    assert values.exact_backlog
    assert not values.skip_run_without_new_data


def test_effective_policies_have_every_field() -> None:
    topic = Policies(emulation=Settings(exact_backlog=True))
    namespace = Policies(emulation=Settings(profile=PULSAR_4))
    applied = effective_policies(topic, namespace, Policies()).emulation
    assert [field.name for field, _ in applied.ListFields()] == list(FIELDS)
    assert applied == in_force(emulation(namespace.emulation, topic.emulation))


def test_setting_a_profile_unsets_single_fields() -> None:
    current = Policies(retention_ms=5, emulation=Settings(exact_backlog=False))
    changed = updated_policies(current, Policies(emulation=Settings(profile=PULSAR_4)), ())
    assert changed == Policies(retention_ms=5, emulation=Settings(profile=PULSAR_4))


def test_one_field_can_be_removed() -> None:
    current = Policies(emulation=Settings(profile=PULSAR_4, exact_backlog=True))
    changed = updated_policies(current, Policies(), ["emulation.exact_backlog"])
    assert changed == Policies(emulation=Settings(profile=PULSAR_4))


@pytest.mark.parametrize("name", ["emulation.nonsense", "other.exact_backlog", "emulations"])
def test_removing_an_unset_field_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="Unknown policy"):
        updated_policies(Policies(), Policies(), [name])


@pytest.mark.parametrize("change", ["nonsense=true", "exact_backlog=1", "exact_backlog"])
def test_a_contradictory_change_is_refused(change: str) -> None:
    with pytest.raises(InvalidRequest, match="exact_backlog"):
        parse_settings(None, [change])


def test_an_unknown_profile_is_refused_with_a_list() -> None:
    with pytest.raises(InvalidRequest, match=r"documented, pulsar-4, kafka-4\.1"):
        parse_settings("pulsar-5", [])


def test_the_null_key_setting_is_a_separate_policy() -> None:
    policies = parse_policies(PULSAR_4, ["retain_null_key=true", "exact_backlog=true"])
    assert policies == Policies(
        retain_null_key=True, emulation=Settings(profile=PULSAR_4, exact_backlog=True)
    )


def test_profiles_of_pulsar_and_kafka_topics_are_independent() -> None:
    """Each resets its fields; `documented` resets all."""
    broker = Settings(profile=PULSAR_4, gauges_with_defects=True)
    both = emulation(broker, Settings(profile=KAFKA_4_1))
    assert both.trim_without_cursor
    assert both.map_reopens_aborted
    assert emulation(broker, Settings(profile=DOCUMENTED)) == Emulation()
    beside = parse_settings(PULSAR_4, changes_of(KAFKA_4_1))
    assert emulation(beside) == both


@pytest.mark.parametrize("real", [PULSAR_4, KAFKA_4_1])
def test_the_tables_for_users_have_every_field_with_its_values_and_rule(real: str) -> None:
    row = re.compile(r"\| `(\w+)` \| (true|false) \| (true|false) \| (\S+) \|")
    table = TABLE.read_text().split("| field |")[1 + (real == KAFKA_4_1)]
    assert table.startswith(f" `documented` | `{real}` | rule |")
    found = {
        name: (documented == "true", other == "true", rule)
        for name, documented, other, rule in row.findall(table)
    }
    documented = PROFILES[DOCUMENTED]
    values = {name: (getattr(documented, name), getattr(PROFILES[real], name)) for name in FIELDS}
    expected = {
        name: (*pair, RULES[name]) for name, pair in values.items() if pair[0] is not pair[1]
    }
    assert found == expected
    assert set(RULES.values()) <= set(re.findall(r"^\* \*\*(\S+)\*\*", TABLE.read_text(), re.M))
