"""Policies: which value counts, which values may be set, and how a set of them changes. Pure.

A policy may be set on a topic, on its namespace and on the broker; the nearest one that is set
counts. Set to 0 is set: a topic's threshold of 0 wins over a namespace's that is positive (Pulsar's
HierarchyTopicPolicies; reference case THR-03).

    >>> broker = Policies(compaction_threshold_bytes=0)
    >>> namespace = Policies(compaction_threshold_bytes=1)
    >>> effective_threshold(Policies(), namespace, broker)
    Threshold(threshold_bytes=1, source='namespace')
    >>> effective_threshold(Policies(compaction_threshold_bytes=0), namespace, broker)
    Threshold(threshold_bytes=0, source='topic')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.policies.profiles import FIELDS as EMULATION_FIELDS
from ledgerfold.broker.policies.profiles import check_settings, emulation, in_force
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.strategies.catalogue import checked
from ledgerfold.v1.records_pb2 import CompactionStrategy, Policies

if TYPE_CHECKING:
    from ledgerfold.broker.common.settings import BrokerSettings

FIELDS = tuple(field.name for field in Policies.DESCRIPTOR.fields)
_LOWEST = {
    "compaction_threshold_bytes": 0,
    "retention_ms": -1,
    "retention_bytes": -1,
    "message_ttl_ms": 0,
}


class Threshold(NamedTuple):
    """The compaction threshold in force, and the level that set it. 0 bytes: never."""

    threshold_bytes: int
    source: str


def broker_policies(settings: BrokerSettings) -> Policies:
    """The lowest level: every field is set."""
    return Policies(
        compaction_threshold_bytes=settings.compaction_threshold_bytes,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.retention_bytes,
        message_ttl_ms=settings.message_ttl_ms,
        compaction_strategy=settings.compaction_strategy,
        retain_null_key=settings.retain_null_key,
        emulation=settings.emulation,
    )


def effective_policies(topic: Policies, namespace: Policies, broker: Policies) -> Policies:
    """Topic over namespace over broker, field by field.

    A namespace's own applied values are those of a topic that sets nothing. Of the emulation every
    field is set, and none names a profile: what is in force may be a mixture.
    """
    effective, levels = Policies(), (broker, namespace, topic)
    for level in levels:
        _set_over(effective, level)
    values = emulation(*(level.emulation for level in levels))
    effective.emulation.CopyFrom(in_force(values))
    return effective


def _set_over(policies: Policies, changes: Policies) -> None:
    """Field by field; a strategy is one value, with all its settings."""
    if changes.HasField("compaction_strategy"):
        policies.ClearField("compaction_strategy")
    policies.MergeFrom(changes)


def effective_threshold(topic: Policies, namespace: Policies, broker: Policies) -> Threshold:
    """As effective_policies, for the threshold, with the level's name for the log."""
    for source, level in (("topic", topic), ("namespace", namespace)):
        if level.HasField("compaction_threshold_bytes"):
            return Threshold(level.compaction_threshold_bytes, source)
    return Threshold(broker.compaction_threshold_bytes, "broker")


def effective_strategy(
    topic: Policies, namespace: Policies, broker: CompactionStrategy
) -> CompactionStrategy:
    """As effective_policies, for the strategy alone: in a hundredth of the time."""
    for level in (topic, namespace):
        if level.HasField("compaction_strategy"):
            return level.compaction_strategy
    return broker


def check_policies(policies: Policies) -> None:
    """Raises InvalidRequest for a value that no level may have. -1 is "no limit" for retention."""
    for name, lowest in _LOWEST.items():
        value = getattr(policies, name)
        if policies.HasField(name) and value < lowest:
            raise InvalidRequest(f"{name} is {value}; {lowest} is the least.")
    if policies.HasField("compaction_strategy"):
        checked(policies.compaction_strategy)
    check_settings(policies.emulation)


def updated_policies(current: Policies, changes: Policies, remove: Iterable[str]) -> Policies:
    """`current` with the fields of `changes` set and those named by `remove` unset.

    A field of the emulation is named "emulation.exact_backlog"; "emulation" is all of it. Setting a
    profile unsets the fields that stood beside another one.

    Raises InvalidRequest: a bad value, an unknown name, or one both set and removed. Then nothing
    of the update counts.
    """
    check_policies(changes)
    updated = Policies()
    updated.CopyFrom(current)
    if changes.emulation.HasField("profile"):
        updated.ClearField("emulation")
    _set_over(updated, changes)
    if changes.HasField("compaction_strategy"):
        updated.compaction_strategy.CopyFrom(checked(changes.compaction_strategy))
    for name in remove:
        _remove(name, updated, changes)
    _check_retention(updated)
    return updated


def _check_retention(policies: Policies) -> None:
    """Raises InvalidRequest where one limit wants everything kept that the other wants gone."""
    limits = (policies.retention_ms, policies.retention_bytes)
    both = policies.HasField("retention_ms") and policies.HasField("retention_bytes")
    if both and 0 in limits and any(limits):
        raise InvalidRequest(
            "Retention of 0 beside another limit: use -1 for a limit that does not matter, and 0 "
            "for both to keep nothing."
        )


def _remove(name: str, updated: Policies, changes: Policies) -> None:
    group, dot, field = name.partition(".")
    if dot and group == "emulation" and field in (*EMULATION_FIELDS, "profile"):
        is_set = changes.emulation.HasField(field)
        updated.emulation.ClearField(field)
    elif not dot and name in FIELDS:
        is_set = changes.HasField(name)
        updated.ClearField(name)
    else:
        raise InvalidRequest(f"No policy is called {name!r}; there are {', '.join(FIELDS)}.")
    if is_set:
        raise InvalidRequest(f"{name} cannot be set and removed at once.")
