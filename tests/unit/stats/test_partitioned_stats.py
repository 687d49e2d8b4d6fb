"""The stats of partitions added up, with Pulsar's field names (broker/stats/partitioned.py)."""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.stats.partitioned import merged, partitioned_stats


def document(messages: int, removed: int, consumers: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns shortened statistics of broker/stats/topic.py."""
    return {
        "msgInCounter": messages,
        "bytesInCounter": messages * 50,
        "averageMsgSize": 50.0 if messages else 0.0,
        "publishers": [{"producerName": "p", "address": "/127.0.0.1:9"}],
        "subscriptions": {
            "s": {"msgBacklog": messages, "lastAckedTimestamp": messages, "consumers": consumers}
        },
        "deduplicationStatus": "Enabled",
        "compaction": {
            "lastCompactionRemovedEventCount": removed,
            "lastCompactionSucceedTimestamp": removed * 10,
        },
    }


def consumer(name: str, permits: int, average: int) -> dict[str, Any]:
    return {
        "consumerName": name,
        "availablePermits": permits,
        "avgMessagesPerEntry": average,
        "readCompacted": True,
        "connectedSince": "2026",
    }


PARTITIONS = {
    "t-partition-0": document(3, 5, [consumer("a", 10, 1)]),
    "t-partition-1": document(0, 0, []),
    "t-partition-2": document(9, 2, [consumer("a", 20, 4), consumer("b", 1, 1)]),
}


def test_counters_are_added_and_the_latest_time_counts() -> None:
    stats = partitioned_stats(PARTITIONS, per_partition=False)
    assert (stats["msgInCounter"], stats["bytesInCounter"]) == (12, 600)
    assert stats["averageMsgSize"] == 50.0
    assert stats["deduplicationStatus"] == "Enabled"
    assert stats["compaction"] == {
        "lastCompactionRemovedEventCount": 7,
        "lastCompactionSucceedTimestamp": 50,
    }
    assert stats["metadata"] == {"partitions": 3, "deleted": False}
    assert stats["partitions"] == {}


def test_clients_of_equal_names_are_merged() -> None:
    """A client has one producer or consumer on each partition."""
    stats = partitioned_stats(PARTITIONS, per_partition=False)
    assert stats["publishers"] == [{"producerName": "p", "address": "/127.0.0.1:9"}]
    subscription = stats["subscriptions"]["s"]
    assert (subscription["msgBacklog"], subscription["lastAckedTimestamp"]) == (12, 9)
    a, b = subscription["consumers"]
    assert (a["consumerName"], a["availablePermits"], a["avgMessagesPerEntry"]) == ("a", 30, 2)
    assert (a["readCompacted"], a["connectedSince"], b) == (True, "2026", consumer("b", 1, 1))


def test_each_partition_is_shown_on_request() -> None:
    stats = partitioned_stats(PARTITIONS, per_partition=True)
    assert stats["partitions"] == PARTITIONS


def test_values_of_each_partition_are_not_summed() -> None:
    """Limits apply to each; the keys of a consumer are different ones; one may be blocked."""
    blocks = [
        {"backlogQuotaLimitSize": 5, "keyHashRangeArrays": [[0, 9]], "blocked": blocked}
        for blocked in (False, True)
    ]
    assert merged(blocks) == {"backlogQuotaLimitSize": 5, "blocked": True}


def test_a_strategy_is_that_of_one_partition() -> None:
    """Settings of one are never combined with another's name."""
    event_time = {"name": "event-time", "settings": {}, "version": "1"}
    keep = {"name": "keep-n", "settings": {"n": "3"}, "version": "1"}
    # A run without messages has no version.
    unused = event_time | {"version": ""}
    runs = (unused, event_time, keep)
    blocks = [{"compaction": {"lastCompactionStrategy": each}} for each in runs]
    assert merged(blocks)["compaction"]["lastCompactionStrategy"] == event_time
