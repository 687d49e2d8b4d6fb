"""The whole description of a Kafka log, from the pages of its lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerfold.v1.kafka_pb2 import DescribeLogRequest, DescribeLogResponse

# Segments, producers and aborted transactions of a page, of each.
PAGE_MAX = 10_000


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
