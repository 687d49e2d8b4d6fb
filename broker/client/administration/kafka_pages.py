"""Assembles the description of a Kafka log from the pages of its lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1.kafka_pb2 import DescribeLogRequest, DescribeLogResponse

# Segments, producers and aborted transactions of a page, of each.
PAGE_MAX = 10_000
# Attempts to read all pages while nothing is appended.
_ATTEMPTS = 5


def whole_description(
    call: Callable[[DescribeLogRequest], Any], request: DescribeLogRequest
) -> DescribeLogResponse:
    """Describes a log as of the first page: leaves out what is appended before the last one.

    A producer that appends in between is left out, too, as its earlier state is not known any more.
    """
    request.lists_max = PAGE_MAX
    log: DescribeLogResponse = call(request)
    request.batches = False
    end = log.log_end_offset
    while log.more_lists:
        request.lists_from = log.more_lists
        page = call(request)
        log.segments.extend(each for each in page.segments if each.base_offset <= end)
        log.producers.extend(each for each in page.producers if each.last_data_offset < end)
        log.aborted.extend(each for each in page.aborted if each.last_offset < end)
        log.more_lists = page.more_lists
    return log


def exact_description(call: Callable[[DescribeLogRequest], Any], topic: str) -> DescribeLogResponse:
    """Describes a log at one moment. Raises NotAllowed if batches are appended between pages.

    A marker between two pages would end a transaction of which the first page says that it is open.
    """
    for _ in range(_ATTEMPTS):
        ends = set[int]()

        def counted(request: DescribeLogRequest, ends: set[int] = ends) -> Any:
            page = call(request)
            ends.add(page.log_end_offset)
            return page

        log = whole_description(counted, DescribeLogRequest(topic=topic))
        if len(ends) == 1:
            return log
    raise NotAllowed(f"{topic} grows while its producers are listed: stop them, then try again.")
