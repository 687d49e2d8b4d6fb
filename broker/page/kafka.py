"""The page of a Kafka topic: head and tail, the cleaner's checkpoint, segments and passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledgerfold.broker.kafka.cleaner.choice import Candidate
from ledgerfold.broker.kafka.cleaner.cleaner import plan_of
from ledgerfold.broker.kafka.log.segments import LiveSegment
from ledgerfold.broker.page.strip import Piece, kafka_strip
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.kafka.cleanable import Plan
from ledgerfold.storage.entry import Position

SEGMENTS_LISTED = 200


def kafka_values(broker: Broker, topic: KafkaTopic) -> dict[str, Any]:
    """Returns what the template shows."""
    partition, cleaner, config = topic.partition, broker.cleaner, topic.config
    plan = plan_of(partition, broker.clock_ms())
    segments = list(topic.log.segments)
    left_alone = cleaner.states.uncleanable.get(topic.name)
    return {
        "strip": kafka_strip(_pieces(topic, plan), _offsets(topic, plan)),
        "plan": plan,
        "verdict": Candidate(plan, config.min_cleanable_ratio).verdict.value,
        "is_compacted": config.is_compacted,
        "policies": config.policies,
        "ratio_min": config.min_cleanable_ratio,
        "checkpoint": partition.checkpoint,
        "state": str(cleaner.states.of(topic.name) or ""),
        "left_alone": "" if left_alone is None else left_alone.why,
        "size_bytes": sum(each.facts.size_bytes for each in segments),
        "segments": [_segment_row(topic, plan, each) for each in segments[-SEGMENTS_LISTED:]],
        "segments_left_out": max(0, len(segments) - SEGMENTS_LISTED),
        "readers": sorted((each.name, each.offset) for each in topic.readers),
        "passes": [str(each) for each in cleaner.last_passes if each.topic == topic.name],
        "can_clean": config.is_compacted and left_alone is None,
    }


def _kind(topic: KafkaTopic, plan: Plan, base_offset: int) -> str:
    """Returns the part of the log that a segment is in."""
    if base_offset == topic.log.segments.active.base_offset:
        return "open"
    if not topic.config.is_compacted:
        return "raw"
    if base_offset < plan.first_dirty_offset:
        return "compacted"
    return "ahead" if base_offset < plan.bound else "raw"


def _pieces(topic: KafkaTopic, plan: Plan) -> list[Piece]:
    return [
        Piece(
            f"Segment {each.base_offset:,}",
            each.facts.size_bytes,
            Position(0, each.base_offset),
            Position(0, max(each.base_offset, each.facts.next_offset - 1)),
            kind=_kind(topic, plan, each.base_offset),
            detail=f"offsets to {each.facts.next_offset - 1:,}" if each.facts.size_bytes else "",
        )
        for each in topic.log.segments
    ]


def _offsets(topic: KafkaTopic, plan: Plan) -> Sequence[tuple[str, int, str]]:
    partition = topic.partition
    offsets = [
        ("log start", partition.log_start_offset, "cursor"),
        ("high watermark", partition.high_watermark, "cursor"),
    ]
    if topic.config.is_compacted:
        offsets.insert(0, ("checkpoint", plan.first_dirty_offset, "horizon"))
        if plan.bound > plan.first_dirty_offset:
            offsets.insert(1, ("end of the head", plan.bound, "cursor"))
    if partition.last_stable_offset != partition.high_watermark:
        offsets.append(("last stable offset", partition.last_stable_offset, "cursor"))
    offsets += [(each.name, each.offset, "cursor") for each in topic.readers]
    return [(f"{name} {offset:,}", offset, kind) for name, offset, kind in offsets]


def _segment_row(topic: KafkaTopic, plan: Plan, segment: LiveSegment) -> dict[str, Any]:
    facts = segment.facts
    return {
        "base": segment.base_offset,
        "next": facts.next_offset,
        "bytes": facts.size_bytes,
        "modified_ms": facts.modified_ms,
        "is_cleaned": segment.is_cleaned,
        "kind": _kind(topic, plan, segment.base_offset),
    }
