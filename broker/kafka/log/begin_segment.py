"""Begins a segment at a given offset, for a copy of another log that is built segment by segment.

A log's own segments end where the next one's offsets begin. A copied log may have gaps between
segments, need not begin at 0, and may have segments that a cleaning left empty.
"""

from __future__ import annotations

from dataclasses import replace

from ledgerfold.broker.kafka.config.settings import INT_MAX, LONG_MAX
from ledgerfold.broker.kafka.log.log import KafkaLog
from ledgerfold.broker.kafka.log.segment_list import move_active
from ledgerfold.broker.kafka.log.segments import LiveSegment, Part, cleaned_segment, empty_segment
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind, Moved
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord

# A segment's offsets span at most an int.
LAST_BASE_OFFSET = LONG_MAX - INT_MAX


async def begin_segment(
    log: KafkaLog,
    stored: StoredTopic,
    base_offset: int,
    empty_modified_ms: int | None,
    modified_ms: int | None = None,
) -> LiveSegment:
    """Begins an empty active segment at `base_offset` and returns it. It is durable on return.

    `empty_modified_ms`: an active segment that is empty already stays, as a cleaning leaves empty
    segments, with this modification time; None moves it. `modified_ms`: the new segment's
    modification time while it is empty; None is the present. Raises KafkaError
    (OFFSET_OUT_OF_RANGE), Moved, DiskFailure, and the error with which the log failed.
    """
    if base_offset > LAST_BASE_OFFSET:
        raise KafkaError(
            KafkaErrorKind.OFFSET_OUT_OF_RANGE,
            f"A segment of {stored.name} cannot begin at {base_offset}: offsets end at "
            f"{LONG_MAX}, and a segment may begin at {LAST_BASE_OFFSET} at most.",
        )
    if base_offset < max(log.end_offset, log.segments.active.base_offset):
        raise KafkaError(
            KafkaErrorKind.OFFSET_OUT_OF_RANGE,
            f"A segment of {stored.name} cannot begin at {base_offset}: the log's end is "
            f"{log.end_offset}.",
        )
    active = log.segments.active
    if not active.facts.is_empty:
        active = log.roll(base_offset)
    await log.settle()
    _check_empty(log, stored, active)
    ended = None
    if active.base_offset != base_offset and empty_modified_ms is not None:
        ended = empty_segment(active.base_offset, empty_modified_ms)

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        _check_empty(log, stored, active)
        move_active(record.kafka, base_offset, ended)
        if modified_ms is not None:
            record.kafka.segments[-1].begun_ms = modified_ms

    def apply() -> None:
        assert active.growth is not None
        growth = replace(active.growth, base_offset=base_offset, next_offset=base_offset)
        if modified_ms is not None:
            growth.modified_ms = modified_ms
        parts = [Part(each, base_offset) for each in active.ledger_ids]
        moved = [LiveSegment(base_offset, parts, growth)]
        if ended is not None:
            moved.insert(0, cleaned_segment(ended))
        log.segments.replace_active(moved)
        log.end_offset = log.durable_end_offset = base_offset

    await stored.change(edit, apply)
    return log.segments.active


def _check_empty(log: KafkaLog, stored: StoredTopic, active: LiveSegment) -> None:
    if active is not log.segments.active or active.facts.size_bytes:
        raise Moved(f"{stored.name} got new records before the segment began; try again.")
