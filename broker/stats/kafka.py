"""The stats of a Kafka topic in `topics stats` and `topics stats-internal`.

Values common to both kinds of topics have Pulsar's names, so that one dashboard shows both; those
of Kafka partitions are in the block `kafka`, with Kafka's names. There are no subscriptions: a
reader is listed under `readers`, with its next offset.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.stats.subscription import counters
from ledgerfold.broker.topics.kafka_reader import KafkaReader
from ledgerfold.broker.topics.kafka_topic import KafkaTopic


def kafka_stats(topic: KafkaTopic) -> dict[str, Any]:
    """Returns `topics stats`. Counters start when the topic is loaded."""
    return {
        **counters(topic),
        "storageSize": size_bytes(topic),
        # Kafka topics have no subscriptions.
        "backlogSize": 0,
        "publishers": [
            {"producerName": each.name, **each.peer.stats()} for each in topic.producers
        ],
        "subscriptions": {},
        "readers": [_reader(each) for each in topic.readers],
        "kafka": _partition(topic),
    }


def kafka_internal_stats(topic: KafkaTopic, cleaner: Cleaner) -> dict[str, Any]:
    """Returns `topics stats-internal`."""
    active, uncleanable = topic.log.segments.active, cleaner.states.uncleanable.get(topic.name)
    return {
        "entriesAddedCounter": topic.entries_in,
        "totalSize": size_bytes(topic),
        "lastConfirmedEntry": f"0:{topic.last_offset}",
        "state": "LedgerOpened",
        "cursors": {},
        "kafka": {
            **_partition(topic),
            "checkpoint": topic.partition.checkpoint,
            "producers": len(topic.partition.producers.entries),
            "cleaningState": str(cleaner.states.of(topic.name) or ""),
            "uncleanable": uncleanable.why if uncleanable else "",
            "uncleanableKind": uncleanable.kind if uncleanable else "",
            "segmentList": [
                {
                    "baseOffset": each.base_offset,
                    "nextOffset": each.facts.next_offset,
                    "size": each.facts.size_bytes,
                    "active": each is active,
                    "cleaned": each.is_cleaned,
                    "ledgerIds": each.ledger_ids,
                }
                for each in topic.log.segments
            ],
        },
    }


def size_bytes(topic: KafkaTopic) -> int:
    """Returns the size of its batches: Kafka's `Size`."""
    return sum(each.facts.size_bytes for each in topic.log.segments)


def _partition(topic: KafkaTopic) -> dict[str, Any]:
    partition = topic.partition
    return {
        "partition": partition.label,
        "cleanupPolicy": ",".join(topic.config.policies),
        "segments": len(list(topic.log.segments)),
        "logStartOffset": partition.log_start_offset,
        "logEndOffset": topic.log.end_offset,
        "highWatermark": partition.high_watermark,
        "lastStableOffset": partition.last_stable_offset,
    }


def _reader(reader: KafkaReader) -> dict[str, Any]:
    return {
        "readerName": reader.name,
        "offset": reader.offset,
        "isolationLevel": "read_committed" if reader.read_committed else "read_uncommitted",
        "availablePermits": reader.permits,
        "unsentBytes": reader.share.size_bytes,
        **reader.traffic.stats(),
        **reader.peer.stats(),
    }
