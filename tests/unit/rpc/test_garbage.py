"""Tests that malformed messages are rejected as any other invalid request, without a log entry."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.broker.rpc.handlers import service_handlers
from ledgerfold.broker.server.grpc_server import ADMIN_SERVICE
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import InvalidRequest
from tests.model.broker_lab import BrokerLab


async def _ask(channel: Any, path: str) -> None:
    if "/Watch" in path:
        await anext(aiter(channel.unary_stream(path)(b"\xff\xff")))
    else:
        await channel.unary_unary(path)(b"\xff\xff")


@pytest.mark.parametrize("method", ["CreateTopic", "WatchCompaction"])
def test_malformed_requests_are_refused(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """Tests unary calls and streams."""
    lab = BrokerLab()

    async def call() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((service_handlers(ADMIN_SERVICE, admin_calls(lab.broker)),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.RpcError) as caught:
                await _ask(channel, f"/{ADMIN_SERVICE.full_name}/{method}")
        await server.stop(None)
        error = error_from_rpc(caught.value)
        assert isinstance(error, InvalidRequest)
        assert f"Not a valid {method}Request" in error.message

    asyncio.run(call())
    # Closed loops of other tests may log during this one.
    assert not [each for each in caplog.records if each.name.startswith("ledgerfold")]
    lab.stop()
