"""What a Kafka topic says of itself in `topics stats` and `topics stats-internal`.

What both kinds of topics have stands under Pulsar's names, so that one dashboard shows them side by
side; what only a Kafka partition has stands in the block `kafka`, by Kafka's words. There are no
subscriptions: a reader is shown among `readers`, with the offset that it comes to next.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.kafka.cleaner import Cleaner
from ledgerfold.broker.topics.kafka_reader import KafkaReader
from ledgerfold.broker.topics.kafka_topic import KafkaTopic


def kafka_stats(topic: KafkaTopic) -> dict[str, Any]:
    """`topics stats`. Counters are since the topic was loaded."""
    return {
        "msgInCounter": topic.messages_in,
        "bytesInCounter": topic.bytes_in,
        "averageMsgSize": topic.bytes_in / topic.messages_in if topic.messages_in else 0.0,
        "msgOutCounter": topic.messages_out,
        "bytesOutCounter": topic.bytes_out,
        "storageSize": size_bytes(topic),
        # Nobody who has one is there.
        "backlogSize": 0,
        "publishers": [
            {"producerName": each.name, **each.peer.stats()} for each in topic.producers
        ],
        "subscriptions": {},
        "readers": [_reader(each) for each in topic.readers],
        "kafka": _partition(topic),
    }


def kafka_internal_stats(topic: KafkaTopic, cleaner: Cleaner) -> dict[str, Any]:
    """`topics stats-internal`."""
    active, left_alone = topic.log.segments.active, cleaner.states.uncleanable.get(topic.name)
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
            "uncleanable": left_alone.why if left_alone else "",
            "uncleanableKind": left_alone.kind if left_alone else "",
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
    """Of its batches: what Kafka's `Size` counts."""
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
        "unsentBytes": reader.share.held,
        **reader.traffic.stats(),
        **reader.peer.stats(),
    }
