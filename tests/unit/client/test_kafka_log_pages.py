"""The description of a log that has several pages of segments, producers and aborted transactions.

No test had a client that is answered with a page, or a producer that appends between two pages.
"""

from __future__ import annotations

from typing import Any

import pytest

from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
from ledgerfold.broker.client.administration.kafka_pages import whole_description
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1.kafka_pb2 import (
    DescribeLogRequest,
    DescribeLogResponse,
    KafkaAbortedInfo,
    KafkaProducerInfo,
    KafkaSegmentInfo,
)

PAGES = {
    "": DescribeLogResponse(
        segments=[KafkaSegmentInfo(base_offset=0)],
        producers=[KafkaProducerInfo(producer_id=1)],
        more_lists="5,-,-",
        log_end_offset=7,
    ),
    "5,-,-": DescribeLogResponse(
        segments=[KafkaSegmentInfo(base_offset=5), KafkaSegmentInfo(base_offset=9)],
        producers=[
            KafkaProducerInfo(producer_id=2, last_data_offset=6),
            KafkaProducerInfo(producer_id=3, last_data_offset=7),
        ],
        aborted=[KafkaAbortedInfo(last_offset=6), KafkaAbortedInfo(last_offset=7)],
        log_end_offset=10,
    ),
}


def test_all_pages_of_the_lists_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(request: DescribeLogRequest, **others: Any) -> DescribeLogResponse:
        assert request.lists_max > 0
        page = DescribeLogResponse()
        page.CopyFrom(PAGES[request.lists_from])
        if request.batches:
            page.batches.add(batch=b"b")
        return page

    with KafkaLogs("127.0.0.1:1") as logs:
        monkeypatch.setattr(logs, "_call", call)
        described = logs.describe_log("t", batches=True)
        with pytest.raises(NotAllowed, match="grows"):
            logs.describe("t")
    log = whole_description(call, DescribeLogRequest(topic="t"))
    assert [each.base_offset for each in log.segments] == [0, 5]
    assert [each.producer_id for each in log.producers] == [1, 2]
    assert [each.last_offset for each in log.aborted] == [6]
    # What was added between the pages is beyond the end, and left out.
    assert (log.log_end_offset, log.more_lists) == (7, "")
    assert [each.base_offset for each in described.segments] == [0, 5]
    assert described.batches == [b"b"]
