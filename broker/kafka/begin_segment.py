"""A segment that begins where another log's does: for a copy of that log, built segment by segment.

A log of our own ends a segment where its offsets are. In one that is copied gaps may lie between
segments, the first need not begin at 0, and a cleaning may have left some with nothing in them.
"""

from __future__ import annotations

from dataclasses import replace

from ledgerfold.broker.kafka.listing import move_active
from ledgerfold.broker.kafka.log import KafkaLog
from ledgerfold.broker.kafka.segments import LiveSegment, Part, cleaned_segment, empty_segment
from ledgerfold.broker.kafka.settings import INT_MAX, LONG_MAX
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind, Moved
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord

# A segment takes as many offsets as an int counts.
LAST_BASE_OFFSET = LONG_MAX - INT_MAX


async def begin_segment(
    log: KafkaLog,
    stored: StoredTopic,
    base_offset: int,
    empty_modified_ms: int | None,
    modified_ms: int | None = None,
) -> LiveSegment:
    """The active segment, which holds nothing, from that offset on, whatever the log's end was.

    `empty_modified_ms`: where the active one held nothing before, it stays, as a cleaning leaves
    segments, of that modification time; None: it moves. `modified_ms`: the new one's, as long as
    it holds nothing; None: when it began. Durable when it returns. Raises KafkaError
    (OFFSET_OUT_OF_RANGE), Moved, DiskFailure, and what made the log fail.
    """
    if base_offset > LAST_BASE_OFFSET:
        raise KafkaError(
            KafkaErrorKind.OFFSET_OUT_OF_RANGE,
            f"A segment of {stored.name} cannot begin at {base_offset}: offsets end at "
            f"{LONG_MAX}, and one that begins behind {LAST_BASE_OFFSET} would meet that end.",
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
    left = None
    if active.base_offset != base_offset and empty_modified_ms is not None:
        left = empty_segment(active.base_offset, empty_modified_ms)

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        _check_empty(log, stored, active)
        move_active(record.kafka, base_offset, left)
        if modified_ms is not None:
            record.kafka.segments[-1].begun_ms = modified_ms

    def apply() -> None:
        assert active.growth is not None
        growth = replace(active.growth, base_offset=base_offset, next_offset=base_offset)
        if modified_ms is not None:
            growth.modified_ms = modified_ms
        parts = [Part(each, base_offset) for each in active.ledger_ids]
        moved = [LiveSegment(base_offset, parts, growth)]
        if left is not None:
            moved.insert(0, cleaned_segment(left))
        log.segments.replace_active(moved)
        log.end_offset = log.durable_end_offset = base_offset

    await stored.change(edit, apply)
    return log.segments.active


def _check_empty(log: KafkaLog, stored: StoredTopic, active: LiveSegment) -> None:
    if active is not log.segments.active or active.facts.size_bytes:
        raise Moved(f"{stored.name} was appended to while a segment was to begin.")
