"""The broker of a lab behind a real gRPC server, in the test's process and on the lab's loop.

>>> lab = BrokerLab()
>>> served = ServedLab(lab)
>>> served.ask(ListTopicsRequest()).topics
[]
>>> served.close()
>>> lab.stop()
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.broker.client.streams.connection import StreamCall
from ledgerfold.broker.rpc.stream import EOF
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.server.grpc_server import (
    ADMIN_SERVICE,
    DATA_SERVICE,
    KAFKA_SERVICE,
    Server,
)
from ledgerfold.broker.wire.frames import FRAME_BYTES_MAX
from ledgerfold.v1.admin_pb2 import ListTopicsRequest
from tests.model.broker_lab import BrokerLab
from tests.support.waiting import WAIT_S

_OPTIONS = [("grpc.max_receive_message_length", FRAME_BYTES_MAX)]
# All calls of the broker by request type, which is unique.
METHODS = {
    method.input_type.full_name: method
    for service in (DATA_SERVICE, ADMIN_SERVICE, KAFKA_SERVICE)
    for method in service.methods
}
# For the example above.
__all__ = ["METHODS", "ListTopicsRequest", "ServedLab", "end_of", "path_of", "write"]


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


async def write(call: Any, data: bytes) -> None:
    """Writes to a stream, which the broker may have ended already: end_of() returns how."""
    with suppress(grpc.RpcError, asyncio.InvalidStateError):
        await StreamCall(call).write(data)


async def end_of(call: Any) -> grpc.RpcError | None:
    """Reads a stream to its end; None: that was no error."""
    with suppress(grpc.RpcError):
        while await call.read() is not EOF:
            continue
    if await call.code() is grpc.StatusCode.OK:
        return None
    return _Ended(await call.code(), await call.details(), await call.trailing_metadata())


class _Ended(grpc.RpcError):
    """The error of a stream that was read to its end."""

    def __init__(self, code: grpc.StatusCode, details: str, metadata: Any) -> None:
        super().__init__(details)
        self._told = code, details, metadata

    def code(self) -> grpc.StatusCode:
        return self._told[0]

    def details(self) -> str:
        return self._told[1]

    def trailing_metadata(self) -> Any:
        return self._told[2]


def _bytes(request: Message) -> bytes:
    return request.SerializeToString()


class ServedLab:
    """`channel` is a grpc.aio.Channel to it; coroutines that use it run through run()."""

    def __init__(self, lab: BrokerLab, guard: Guard | None = None) -> None:
        self.lab, self._guard = lab, guard
        # Where it listens.
        self.address = ""
        lab.broker.settings = replace(lab.broker.settings, listen="127.0.0.1:0")
        self._server: Server | None = None
        self.channel: Any = self.run(self._connected())

    async def _connected(self) -> Any:
        self._server = Server(self.lab.broker, self._guard)
        self.address = await self._server.start()
        return grpc.aio.insecure_channel(self.address, options=_OPTIONS)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.lab.loop.run_until_complete(asyncio.wait_for(work, WAIT_S))

    def ask(self, request: Message) -> Any:
        """The answer to the call that takes such a request. Raises grpc.RpcError."""
        return self.run(self.asking(request))

    async def asking(self, request: Message) -> Any:
        """The same, to be awaited on the lab's loop."""
        method = METHODS[request.DESCRIPTOR.full_name]
        call = self.channel.unary_unary(path_of(method))
        return GetMessageClass(method.output_type).FromString(await call(_bytes(request)))

    def close(self) -> None:
        self.run(self._close())

    async def _close(self) -> None:
        assert self._server is not None
        await self.channel.close()
        await self._server.stop(0)
        # Its end is a task on the loop, too, which runs before the loop is closed.
        self._server = None
        for _ in range(10):
            await asyncio.sleep(0)
