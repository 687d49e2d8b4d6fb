"""The administration client: arguments, errors, and a quick import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import InvalidRequest, TopicNotFound, Unavailable
from ledgerfold.v1 import admin_pb2, admin_pb2_grpc


class Service(admin_pb2_grpc.AdminServiceServicer):
    """Answers two calls; the rest is not there."""

    def GetTopicStats(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.topic == "none":
            status = status_pb2.Status(code=code_pb2.NOT_FOUND, message="No topic none.")
            status.details.add().Pack(
                error_details_pb2.ErrorInfo(reason="TOPIC_NOT_FOUND", domain="ledgerfold")
            )
            context.abort_with_status(rpc_status.to_status(status))
        return admin_pb2.GetTopicStatsResponse(json='{"msgInCounter": 3}')

    def WatchCompaction(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        for status in (admin_pb2.COMPACTION_STATUS_RUNNING, admin_pb2.COMPACTION_STATUS_SUCCESS):
            yield admin_pb2.WatchCompactionResponse(
                status=admin_pb2.GetCompactionStatusResponse(status=status)
            )


@pytest.fixture
def admin() -> Iterator[Admin]:
    server = grpc.server(ThreadPoolExecutor(2))
    admin_pb2_grpc.add_AdminServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Admin(f"ledgerfold://127.0.0.1:{port}") as connected:
        yield connected
    server.stop(None).wait()


def test_json_documents_are_returned_as_dictionaries(admin: Admin) -> None:
    """As pulsar-admin prints them."""
    assert admin.stats("t") == {"msgInCounter": 3}


def test_errors_are_raised_as_their_class(admin: Admin) -> None:
    """With the broker's sentence."""
    with pytest.raises(TopicNotFound, match="No topic none"):
        admin.stats("none")


def test_a_watch_ends_with_the_run(admin: Admin) -> None:
    """One status per change."""
    statuses = [status.status for status in admin.watch_compaction("t")]
    assert statuses == [
        admin_pb2.COMPACTION_STATUS_RUNNING,
        admin_pb2.COMPACTION_STATUS_SUCCESS,
    ]


@pytest.mark.parametrize("scope", [{}, {"topic": "t", "namespace": "a/b"}])
def test_policies_belong_to_one_scope(admin: Admin, scope: dict[str, str]) -> None:
    """Neither none nor two."""
    with pytest.raises(InvalidRequest):
        admin.policies(**scope)  # type: ignore[arg-type]


def test_a_missing_broker_raises_an_error_at_once() -> None:
    """Nothing is tried again: a command should not hang."""
    with Admin("127.0.0.1:1") as admin, pytest.raises(Unavailable):
        admin.list_topics()


@pytest.mark.process
def test_the_import_loads_no_data_client() -> None:
    """A command that only asks something loads no codec and no part of the data client."""
    code = "import sys, ledgerfold.broker.client.administration.admin; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(run.stdout.split())
    assert not modules & {
        "ledgerfold.storage.native",
        "zstandard",
        "lz4",
        "ledgerfold.broker.client.sync.client",
        "rocksdict",
    }


def test_a_topic_is_not_created_with_partitions(admin: Admin) -> None:
    with pytest.raises(InvalidRequest, match="create_partitioned_topic creates partitions"):
        admin.create_topic("t", partitions=3)
