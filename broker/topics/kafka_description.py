"""The segments, producers and aborted transactions in the wire description of a Kafka log.

Bounds: a page has at most PAGE_MAX of each. A client that does not ask for pages gets all of them,
or an error if there are more than WHOLE_MAX of one kind. The next page begins at a base offset, a
producer id and the offset of a marker, so that items that are added or removed in between do not
shift it.

>>> str(ListPlaces(segments=7, producers=None))
'7,-,0'
>>> ListPlaces.parse("7,-,0")
ListPlaces(segments=7, producers=None, aborted=0)
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from ledgerfold.broker.kafka.log.segments import Segments
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.kafka.producers.producers import Producers
from ledgerfold.storage.errors import InvalidRequest, LimitExceeded
from ledgerfold.v1.kafka_pb2 import (
    DescribeLogResponse,
    KafkaAbortedInfo,
    KafkaProducerInfo,
    KafkaSegmentInfo,
)

PAGE_MAX = 10_000
# Other clients wait while an answer is made: twice the time of a page.
WHOLE_MAX = 20_000
_PLACES = re.compile(r"(\d{1,19}|-),(\d{1,19}|-),(\d{1,19}|-)", re.ASCII)
_REMEDY = "Ask for pages, with `lists_max`, as clients of this version do."
Info = TypeVar("Info")


class ListPlaces(NamedTuple):
    """The beginnings of the pages of the lists. None: the list was complete."""

    segments: int | None = 0
    producers: int | None = 0
    aborted: int | None = 0

    @classmethod
    def parse(cls, text: str) -> ListPlaces:
        """Parses what an earlier page named; "": the beginning. Raises InvalidRequest."""
        if not text:
            return cls()
        found = _PLACES.fullmatch(text)
        if found is None:
            raise InvalidRequest(
                f"{text!r} is not the start of a page of lists: pass `more_lists` of the page "
                "before."
            )
        return cls(*(None if each == "-" else int(each) for each in found.groups()))

    def __str__(self) -> str:
        return ",".join("-" if each is None else str(each) for each in self)


def add_lists(
    description: DescribeLogResponse, partition: Partition, places: ListPlaces, lists_max: int
) -> None:
    """Adds a page of each list, and where the next pages begin, if there are any.

    `lists_max`: the number of each in a page; 0: all. Raises LimitExceeded.
    """
    most = min(lists_max, PAGE_MAX) or WHOLE_MAX
    segments, more_segments = _page(
        segment_infos(partition.log.segments), lambda each: each.base_offset, places.segments, most
    )
    producers, more_producers = _page(
        producer_infos(partition.producers, places.producers, most + 1),
        lambda each: each.producer_id,
        places.producers,
        most,
    )
    ended = (KafkaAbortedInfo(**each._asdict()) for each in partition.aborted())
    aborted, more_aborted = _page(ended, lambda each: each.last_offset, places.aborted, most)
    more = ListPlaces(more_segments, more_producers, more_aborted)
    if any(each is not None for each in more):
        if not lists_max:
            what = "Segments, producers or aborted transactions of a log in one answer"
            raise LimitExceeded(what, WHOLE_MAX + 1, WHOLE_MAX, _REMEDY)
        description.more_lists = str(more)
    if lists_max:
        entries = partition.producers.entries.values()
        description.known_producers = sum(not each.is_forgotten for each in entries)
    description.segments.extend(segments)
    description.producers.extend(producers)
    description.aborted.extend(aborted)


def _page(
    infos: Iterable[Info], key: Callable[[Info], int], start: int | None, most: int
) -> tuple[list[Info], int | None]:
    """Returns a page of a list that is in order, and where the next one begins."""
    page = list[Info]()
    if start is None:
        return page, None
    for each in infos:
        if key(each) < start:
            continue
        if len(page) == most:
            return page, key(each)
        page.append(each)
    return page, None


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


def producer_infos(
    producers: Producers, start: int | None, most: int
) -> Iterator[KafkaProducerInfo]:
    """Yields the first `most` producers whose id is `start` or above, in order; None: none."""
    if start is None:
        return
    for id_ in heapq.nsmallest(most, (each for each in producers.entries if each >= start)):
        each = producers.last_of(id_)
        yield KafkaProducerInfo(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_data_offset=each.last_data_offset,
            last_timestamp_ms=each.last_timestamp_ms,
            transaction_first_offset=each.transaction_first_offset,
            last_offset_delta=each.offset_delta,
            coordinator_epoch=each.coordinator_epoch,
            is_forgotten=producers.entries[id_].is_forgotten,
        )
