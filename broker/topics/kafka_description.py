"""Parts of a Kafka log's description, as it travels: its segments, and its producers."""

from __future__ import annotations

from collections.abc import Iterator

from ledgerfold.broker.kafka.producers import Producers
from ledgerfold.broker.kafka.segments import Segments
from ledgerfold.v1.kafka_pb2 import KafkaProducerInfo, KafkaSegmentInfo


def segment_infos(segments: Segments) -> Iterator[KafkaSegmentInfo]:
    for segment in segments:
        facts = segment.facts
        yield KafkaSegmentInfo(
            base_offset=facts.base_offset,
            next_offset=facts.next_offset,
            size_bytes=facts.size_bytes,
            largest_timestamp_ms=facts.max_timestamp_ms,
            modified_ms=facts.modified_ms,
            is_active=segment is segments.active,
            is_cleaned=segment.is_cleaned,
            offset_index_bytes=facts.offset_index_bytes,
            time_index_bytes=facts.time_index_bytes,
            ledger_ids=segment.ledger_ids,
        )


def producer_infos(producers: Producers) -> Iterator[KafkaProducerInfo]:
    for each in producers.snapshot():
        yield KafkaProducerInfo(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_data_offset=each.last_data_offset,
            last_timestamp_ms=each.last_timestamp_ms,
            transaction_first_offset=each.transaction_first_offset,
            last_offset_delta=each.offset_delta,
            coordinator_epoch=each.coordinator_epoch,
            is_forgotten=producers.entries[each.producer_id].is_forgotten,
        )
