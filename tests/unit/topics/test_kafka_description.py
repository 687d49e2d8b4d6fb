"""Pages of the segments, producers and aborted transactions of a Kafka log.

No test had a log with more of them than a page has, and a client that does not ask for pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.topics import kafka_description
from ledgerfold.broker.topics.kafka_description import ListPlaces
from ledgerfold.storage.errors import InvalidRequest, LimitExceeded
from tests.support.kafka_lab import KafkaLab

A = (b"a", b"1")


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact"})
    yield lab
    lab.close()


def fill(lab: KafkaLab) -> None:
    """Adds five aborted transactions, of five producers, in three segments."""
    for producer in (5, 1, 4, 2, 3):
        fields: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        lab.add([A], is_transactional=True, **fields)
        lab.run(lab.kafka.end_transaction(producer, 0, commit=False, timestamp_ms=5))
        if producer in (1, 2):
            lab.run(lab.kafka.roll())


def lists_of(told: Any) -> tuple[list[int], list[int], list[int]]:
    return (
        [each.base_offset for each in told.segments],
        [each.producer_id for each in told.producers],
        [each.producer_id for each in told.aborted],
    )


@pytest.mark.parametrize(("most", "asked"), [(10_000, 2), (2, 10_000)])
def test_lists_come_in_pages(
    lab: KafkaLab, most: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab)
    monkeypatch.setattr(kafka_description, "PAGE_MAX", most)
    pages, places = list[Any](), ""
    while True:
        told = lab.run(lab.kafka.describe(batches=False, lists_from=places, lists_max=asked))
        pages.append(lists_of(told))
        places = told.more_lists
        if not places:
            break
    assert pages == [
        ([0, 4], [1, 2], [5, 1]),
        ([8], [3, 4], [4, 2]),
        ([], [5], [3]),
    ]


def test_a_client_that_does_not_ask_for_pages_gets_everything(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab)
    monkeypatch.setattr(kafka_description, "PAGE_MAX", 2)
    monkeypatch.setattr(kafka_description, "WHOLE_MAX", 5)
    told = lab.run(lab.kafka.describe(batches=False))
    assert told.more_lists == ""
    assert lists_of(told) == ([0, 4, 8], [1, 2, 3, 4, 5], [5, 1, 4, 2, 3])


def test_more_than_an_answer_has_are_refused(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a client would take the first ones for all."""
    fill(lab)
    monkeypatch.setattr(kafka_description, "WHOLE_MAX", 4)
    with pytest.raises(LimitExceeded, match="`lists_max`"):
        lab.run(lab.kafka.describe(batches=False))


@pytest.mark.parametrize(
    "text", ["1", "-1,0,0", "0,0", "x,0,0", "0,0,0,0", "9" * 20 + ",0,0", "٣,0,0"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="more_lists"):
        ListPlaces.parse(text)


def test_each_page_has_the_number_of_producers_that_are_not_forgotten(lab: KafkaLab) -> None:
    """So a client notices that producers have expired between two pages."""
    fill(lab)
    first = lab.run(lab.kafka.describe(batches=False, lists_max=2))
    lab.kafka.partition.producers.entries[5].is_forgotten = True
    second = lab.run(lab.kafka.describe(batches=False, lists_from=first.more_lists, lists_max=2))
    assert (first.known_producers, second.known_producers) == (5, 4)
