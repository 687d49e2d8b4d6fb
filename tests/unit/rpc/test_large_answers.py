"""Answers with a list of everything, near the size that gRPC sends and above it.

gRPC refused such an answer with the sizes alone, which no test had reached.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.v1.admin_pb2 import ListTopicsRequest
from tests.model.broker_lab import BrokerLab
from tests.support.served_lab import ServedLab

TOPICS = 100_000


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


def test_a_list_that_is_too_large_is_refused_with_advice(
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
    assert "Ask for less" in str(error)
