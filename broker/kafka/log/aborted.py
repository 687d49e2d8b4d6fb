"""The transaction index: the aborted transactions of a log, each in the segment of its marker.

Entries normally come from the log's batches (broker/kafka/producers/producers.py). A copied log
brings its own entries: a cleaning may have removed data, without which the marker alone is not
sufficient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledgerfold.broker.kafka.log.log import KafkaLog
from ledgerfold.broker.kafka.log.reads import StoredBatch
from ledgerfold.broker.kafka.log.segments import LiveSegment
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord


def committed(
    batches: Sequence[StoredBatch], segments: Iterable[LiveSegment]
) -> Sequence[StoredBatch]:
    """Returns the data batches that belong to no aborted transaction."""
    if not any(each.header.is_transactional for each in batches):
        return batches
    first, last = batches[0].header.base_offset, batches[-1].header.last_offset
    # Transactions by producer that overlap those offsets. A marker follows its data.
    spans: dict[int, list[tuple[int, int]]] = {}
    for segment in segments:
        for each in segment.aborted:
            if each.first_offset <= last and each.last_offset >= first:
                span = (each.first_offset, each.last_offset)
                spans.setdefault(each.producer_id, []).append(span)
    return [each for each in batches if not _is_aborted(each.header, spans)]


def _is_aborted(header: BatchHeader, spans: dict[int, list[tuple[int, int]]]) -> bool:
    if not header.is_transactional:
        return False
    return any(
        first <= header.base_offset <= last for first, last in spans.get(header.producer_id, ())
    )


async def take_over(
    log: KafkaLog, stored: StoredTopic, entries: Sequence[AbortedTransaction]
) -> None:
    """Replaces index entries of the active segment by those of the log's original.

    They replace the entries that the same markers produced here, and are durable on return. Raises
    InvalidRequest, Moved, DiskFailure.
    """
    active = log.segments.active
    for each in entries:
        if not (0 <= each.first_offset <= each.last_offset) or each.producer_id < 0:
            raise InvalidRequest(
                f"{each} is not an aborted transaction: its offsets or producer id are invalid."
            )
        if not active.base_offset <= each.last_offset < log.end_offset:
            raise InvalidRequest(
                f"The marker at {each.last_offset} is not in the active segment of {stored.name}, "
                f"from {active.base_offset} to {log.end_offset}."
            )
    by_marker = {each.last_offset: each.record() for each in entries}
    own = [each for each in active.aborted if each.last_offset not in by_marker]
    active.aborted = sorted([*own, *by_marker.values()], key=lambda each: each.last_offset)

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        # A load after a crash reads the entries of the active segment there.
        del record.kafka.rolled.aborted[:]
        record.kafka.rolled.aborted.extend(active.aborted)

    await stored.change(edit)
