"""Assembles the description of a Kafka log from the pages of its lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1.kafka_pb2 import DescribeLogRequest, DescribeLogResponse

# Segments, producers and aborted transactions of a page, of each.
PAGE_MAX = 10_000
# Attempts to read all pages while nothing changes.
_ATTEMPTS = 5


def whole_description(
    call: Callable[[DescribeLogRequest], Any], request: DescribeLogRequest
) -> DescribeLogResponse:
    """Describes a log as of the first page: leaves out what is appended before the last one.

    A producer that appends in between is left out, too, as its earlier state is not known any more.
    """
    log, _ = _joined(call, request)
    return log


def exact_description(call: Callable[[DescribeLogRequest], Any], topic: str) -> DescribeLogResponse:
    """Describes a log at one moment.

    Raises NotAllowed if batches are appended, or producers expire, between pages. A marker between
    two pages would end a transaction that is open on the first page.
    """
    for _ in range(_ATTEMPTS):
        log, moments = _joined(call, DescribeLogRequest(topic=topic))
        if len(moments) == 1:
            return log
    raise NotAllowed(f"{topic} grows while its producers are listed: stop them, then try again.")


def _joined(
    call: Callable[[DescribeLogRequest], Any], request: DescribeLogRequest
) -> tuple[DescribeLogResponse, set[tuple[int, int]]]:
    """Returns the joined pages, and the log's ends and numbers of producers that they had."""
    request.lists_max = PAGE_MAX
    log: DescribeLogResponse = call(request)
    request.batches = False
    end = log.log_end_offset
    moments = {(end, log.known_producers)}
    while log.more_lists:
        request.lists_from = log.more_lists
        page = call(request)
        moments.add((page.log_end_offset, page.known_producers))
        log.segments.extend(each for each in page.segments if each.base_offset <= end)
        log.producers.extend(each for each in page.producers if each.last_data_offset < end)
        log.aborted.extend(each for each in page.aborted if each.last_offset < end)
        log.more_lists = page.more_lists
    return log, moments
