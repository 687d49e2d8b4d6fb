"""Calls that an older compactor, or an older broker, does not have.

The error was gRPC's "Method not found!". No test had a peer without a call.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from ledgerfold.broker.worker.connection import WorkerConnection
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import CompactorUnavailable, LedgerfoldError, RequestError
from ledgerfold.v1.admin_pb2 import GetClockRequest
from ledgerfold.v1.admin_pb2_grpc import AdminServiceStub
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest, DescribeDecisionsRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.support.waiting import WAIT_S


def failure_of(ask: Any) -> LedgerfoldError:
    """Returns the error of a call to a server that has no calls."""

    async def body() -> LedgerfoldError:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await ask(channel)
        except LedgerfoldError as error:
            return error
        except grpc.RpcError as error:
            return error_from_rpc(error)
        finally:
            await server.stop(None)
        raise AssertionError("The call succeeded.")

    return asyncio.run(asyncio.wait_for(body(), WAIT_S))


@pytest.mark.parametrize(
    "ask",
    [
        lambda worker: worker.describe_decisions(DescribeDecisionsRequest()),
        lambda worker: worker.check_strategy(CompactionStrategy(name="shop:Everything")),
        lambda worker: worker.analyze(AnalyzeRequest()),
    ],
)
def test_an_older_compactor(ask: Any) -> None:
    error = failure_of(lambda channel: ask(WorkerConnection(channel, None, "secret", 1)))
    assert type(error) is CompactorUnavailable
    assert "Restart it with the broker's version" in str(error)


def test_an_older_broker() -> None:
    error = failure_of(lambda channel: AdminServiceStub(channel).GetClock(GetClockRequest()))
    assert type(error) is RequestError
    assert "restart it with that version" in str(error)
