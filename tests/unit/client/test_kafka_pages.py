"""Whole descriptions of Kafka logs, from pages between which a producer may append or expire.

No test had a producer that expires between pages: the export had a part of the producers only.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgerfold.broker.client.administration.kafka_pages import exact_description
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1.kafka_pb2 import DescribeLogRequest, DescribeLogResponse, KafkaProducerInfo


def growing(
    at_calls: set[int], expiring_at: int = -1
) -> Callable[[DescribeLogRequest], DescribeLogResponse]:
    """Returns a log of two pages that grows before these calls, and loses a producer before one."""
    calls, end, known = 0, 10, 3

    def describe(request: DescribeLogRequest) -> DescribeLogResponse:
        nonlocal calls, end, known
        end += calls in at_calls
        known -= calls == expiring_at
        calls += 1
        number = int(bool(request.lists_from))
        producer = KafkaProducerInfo(producer_id=number, last_data_offset=5)
        more = "" if number else "-,1,-"
        return DescribeLogResponse(
            log_end_offset=end, producers=[producer], more_lists=more, known_producers=known
        )

    return describe


@pytest.mark.parametrize("at_calls", [set[int](), {0}, {1}, {1, 3, 5}])
def test_pages_are_of_one_moment(at_calls: set[int]) -> None:
    """A marker between two pages ended a transaction that the export showed as open."""
    log = exact_description(growing(at_calls), "t")
    assert log.log_end_offset == 10 + len(at_calls)
    assert [each.producer_id for each in log.producers] == [0, 1]


def test_a_producer_that_expires_between_pages_is_noticed() -> None:
    """The pages would be of two moments."""
    log = exact_description(growing(set(), expiring_at=1), "t")
    assert log.known_producers == 2
    assert [each.producer_id for each in log.producers] == [0, 1]


def test_a_log_that_never_rests_is_refused() -> None:
    with pytest.raises(NotAllowed, match="stop them"):
        exact_description(growing(set(range(100))), "t")
