"""Runs whose worker ends: what they report depends on what the connection says last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from ledgerfold.broker.worker.connection import WorkerConnection, _Call
from ledgerfold.storage.errors import CompactionCancelled, CompactionError, CompactionFailed
from ledgerfold.v1.compactor_pb2 import Manifest


def outcome_of(code: grpc.StatusCode, *, has_ended: bool) -> CompactionError:
    """Returns the error of a run whose call ends with this status, without a name of an error."""

    async def responses() -> AsyncIterator[object]:
        raise AioRpcError(code, Metadata(), Metadata(), "Locally cancelled by application!", "")
        yield

    async def run() -> Manifest:
        connection = WorkerConnection(cast(Any, _Channel()), None, "", 1)
        if has_ended:
            connection.ended.set_result("its health check failed")
        call = _Call[Manifest](cast(Any, responses()), lambda progress: None)
        call.has_begun = True
        return await connection._outcome(call, "run")

    with pytest.raises(CompactionError) as raised:
        asyncio.run(run())
    return raised.value


class _Channel:
    """Has every kind of call, and makes none."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
def test_a_run_whose_worker_ended_failed(code: grpc.StatusCode) -> None:
    """Its channel is closed, which gRPC reports as a cancellation: nobody cancelled the run. The
    worker's end had always been noticed by the call first.
    """
    error = outcome_of(code, has_ended=True)
    assert isinstance(error, CompactionFailed)
    assert error.worker_died
    assert "the worker died (its health check failed)" in error.message


def test_a_cancellation_by_a_worker_that_lives() -> None:
    error = outcome_of(grpc.StatusCode.CANCELLED, has_ended=False)
    assert isinstance(error, CompactionCancelled)
