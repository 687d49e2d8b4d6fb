"""Answers with a list of everything, near the size that gRPC sends and above it.

gRPC refused such an answer with the sizes alone, which no test had reached.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from ledgerfold.broker.client.administration.admin import all_names, all_runs
from ledgerfold.broker.rpc.name_pages import PAGE_BYTES
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.v1.admin_pb2 import (
    GetTopicStatsRequest,
    ListRunsRequest,
    ListRunsResponse,
    ListTopicsRequest,
    ListTopicsResponse,
)
from ledgerfold.v1.records_pb2 import RunRecord
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.served_lab import ServedLab

TOPICS = 100_000
RUNS = 40_000


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_many_topics_are_listed(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"persistent://public/default/{at:060}" for at in range(TOPICS)]
    monkeypatch.setattr(lab.broker.names, "listed", lambda _: list(names))
    served = ServedLab(lab)
    assert list(served.ask(ListTopicsRequest()).topics) == names
    served.close()


def test_topics_with_long_names_are_listed_in_pages(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 topics with the longest names take 13 answers."""
    names = [f"persistent://public/default/{at:01000}" for at in range(TOPICS)]
    monkeypatch.setattr(lab.broker.names, "listed", lambda _: list(names))
    served, sizes = ServedLab(lab), list[int]()

    def call(request: ListTopicsRequest) -> ListTopicsResponse:
        page: ListTopicsResponse = served.ask(request)
        sizes.append(page.ByteSize())
        return page

    assert all_names(call, ListTopicsRequest()) == names
    served.close()
    assert len(sizes) == 13
    assert max(sizes) <= PAGE_BYTES


def test_a_client_that_does_not_ask_for_pages_is_refused_with_advice(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"persistent://public/default/{at:0200}" for at in range(TOPICS)]
    monkeypatch.setattr(lab.broker.names, "listed", lambda _: list(names))
    served = ServedLab(lab)
    with pytest.raises(grpc.RpcError) as refused:
        served.ask(ListTopicsRequest())
    served.close()
    error = error_from_rpc(refused.value)
    assert isinstance(error, LimitExceeded)
    assert "the answer to ListTopics" in str(error)
    assert "ask for one namespace or topic" in str(error)


@pytest.mark.parametrize("limit", [0, 3 * RUNS // 4])
def test_many_runs_are_listed_in_pages(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """An answer with all runs is refused. Several runs are queued in the same millisecond."""
    stored = [
        RunRecord(topic=topic, number=at, queued_ms=at // 3, error_message="x" * 500)
        for topic in ("a", "b")
        for at in range(1, RUNS // 2 + 1)
    ]
    monkeypatch.setattr(lab.broker.metadata, "runs", lambda _: list(stored))
    served, sizes = ServedLab(lab), list[int]()

    def call(request: ListRunsRequest) -> ListRunsResponse:
        page: ListRunsResponse = served.ask(request)
        sizes.append(page.ByteSize())
        return page

    found = all_runs(call, ListRunsRequest(limit=limit))
    with pytest.raises(grpc.RpcError) as refused:
        served.ask(ListRunsRequest())
    served.close()
    assert isinstance(error_from_rpc(refused.value), LimitExceeded)
    newest_first = sorted(stored, key=lambda run: (-run.queued_ms, -run.number, run.topic))
    assert found == newest_first[: limit or None]
    assert len(sizes) > 1
    assert max(sizes) <= PAGE_BYTES


def test_a_document_is_refused_and_not_cut(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a document is not JSON. Only texts of stored records had been cut in a test."""
    document = {"consumers": ["x" * 1000] * 20_000}
    monkeypatch.setattr("ledgerfold.broker.rpc.admin_topics.topic_stats", lambda *_: document)
    lab.publish([([Message(b"a", b"1")], False)])
    served = ServedLab(lab)
    with pytest.raises(grpc.RpcError) as refused:
        served.ask(GetTopicStatsRequest(topic=TOPIC))
    served.close()
    assert isinstance(error_from_rpc(refused.value), LimitExceeded)
