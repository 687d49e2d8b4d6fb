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

from ledgerfold.v1.records_pb2 import Policies

from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from broker.settings import BrokerSettings

FIELDS = tuple(field.name for field in Policies.DESCRIPTOR.fields)
_LOWEST = {"compaction_threshold_bytes": 0, "retention_ms": -1, "retention_bytes": -1}


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
        retain_null_key=settings.retain_null_key,
    )


def effective_policies(topic: Policies, namespace: Policies, broker: Policies) -> Policies:
    """Topic over namespace over broker, field by field.

    A namespace's own applied values are those of a topic that sets nothing.
    """
    effective = Policies()
    for level in (broker, namespace, topic):
        effective.MergeFrom(level)
    return effective


def effective_threshold(topic: Policies, namespace: Policies, broker: Policies) -> Threshold:
    """As effective_policies, for the threshold, with the level's name for the log."""
    for source, level in (("topic", topic), ("namespace", namespace)):
        if level.HasField("compaction_threshold_bytes"):
            return Threshold(level.compaction_threshold_bytes, source)
    return Threshold(broker.compaction_threshold_bytes, "broker")


def check_policies(policies: Policies) -> None:
    """Raises InvalidRequest for a value that no level may have. -1 is "no limit" for retention."""
    for name, lowest in _LOWEST.items():
        value = getattr(policies, name)
        if policies.HasField(name) and value < lowest:
            raise InvalidRequest(f"{name} is {value}; {lowest} is the least.")


def updated_policies(current: Policies, changes: Policies, remove: Iterable[str]) -> Policies:
    """`current` with the fields of `changes` set and those named by `remove` unset.

    Raises InvalidRequest: a bad value, an unknown name, or one both set and removed. Then nothing
    of the update counts.
    """
    check_policies(changes)
    updated = Policies()
    updated.CopyFrom(current)
    updated.MergeFrom(changes)
    for name in remove:
        if name not in FIELDS:
            raise InvalidRequest(f"No policy is called {name!r}; there are {', '.join(FIELDS)}.")
        if changes.HasField(name):
            raise InvalidRequest(f"{name} cannot be set and removed at once.")
        updated.ClearField(name)
    return updated
