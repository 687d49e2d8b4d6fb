"""The stats of a partitioned topic: the sum over its partitions. Pure.

As in Pulsar's `topics partitioned-stats` (TopicStatsImpl.add, SubscriptionStatsImpl.add): counters
are summed, the latest of several times is used, and subscriptions, publishers and consumers with
the same name are merged.

  >>> merged([{"msgInCounter": 2, "lastAckedTimestamp": 7}, {"msgInCounter": 3}])
  {'msgInCounter': 5, 'lastAckedTimestamp': 7}
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

from ledgerfold.v1.admin_pb2 import GetPartitionedTopicMetadataResponse

Document = Mapping[str, Any]
_NAMES = ("producerName", "consumerName", "readerName")
# A compaction strategy with its settings is taken from one partition, whose run had messages.
_WHOLE = ("strategy", "lastCompactionStrategy")
_PROPERTIES = "subscriptionProperties"
# Offsets and similar values cannot be summed.
_KAFKA = "kafka"
# Each partition has these on its own.
_OMITTED = ("keyHashRangeArrays",)
# Limits of each partition.
_LIMITS = ("backlogQuotaLimitSize", "backlogQuotaLimitTime")
_AVERAGES = ("avgMessagesPerEntry", "averageMsgSize")


def partitioned_stats(partitions: Mapping[str, Document], *, per_partition: bool) -> dict[str, Any]:
    """Returns the merged stats. `partitions`: the stats of each, by full name."""
    stats = merged([_without(each, _KAFKA) for each in partitions.values()])
    messages = stats["msgInCounter"]
    return stats | {
        "averageMsgSize": stats["bytesInCounter"] / messages if messages else 0.0,
        "metadata": {"partitions": len(partitions), "deleted": False},
        "partitions": dict(partitions) if per_partition else {},
    }


def metadata_document(metadata: GetPartitionedTopicMetadataResponse) -> dict[str, Any]:
    """Returns Pulsar's JSON of the metadata of a topic, which may be without partitions."""
    document: dict[str, Any] = {"partitions": metadata.partitions, "deleted": False}
    return document | ({"properties": dict(metadata.properties)} if metadata.properties else {})


def _without(document: Document, name: str) -> Document:
    return {each: value for each, value in document.items() if each != name}


def merged(documents: Sequence[Document]) -> dict[str, Any]:
    found = (name for document in documents for name in document if name not in _OMITTED)
    names = dict.fromkeys(found)
    return {
        name: _merged_value(name, [each[name] for each in documents if name in each])
        for name in names
    }


def _merged_value(name: str, values: Sequence[Any]) -> Any:
    first = values[0]
    if name in _WHOLE:
        return next((each for each in values if each.get("version")), first)
    if name == _PROPERTIES:
        return dict(ChainMap(*reversed(values)))
    if isinstance(first, dict):
        return merged(values)
    if isinstance(first, list):
        return _merged_by_name([each for value in values for each in value])
    if isinstance(first, bool):
        return any(values)
    if isinstance(first, str):
        return first
    if name in _AVERAGES:
        return round(sum(values) / len(values))
    return max(values) if _is_time(name) or name in _LIMITS else sum(values)


def _merged_by_name(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """Merges publishers or consumers: a client has one on each partition."""
    groups: dict[str, list[Document]] = {}
    for document in documents:
        name = next(document[each] for each in _NAMES if each in document)
        groups.setdefault(name, []).append(document)
    return [merged(group) for group in groups.values()]


def _is_time(name: str) -> bool:
    return name.endswith(("Timestamp", "Time", "TimeInMills"))
