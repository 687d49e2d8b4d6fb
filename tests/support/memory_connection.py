"""A client's connection to the fake data service without a network, on one event loop.

Nothing takes time or uses threads in between, so a test decides the order of events and can repeat
it. `break_off` is noticed by both ends; messages in flight are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc

from ledgerfold.broker.client.streams.connection import Backoff, ClientSettings
from ledgerfold.v1 import data_pb2
from tests.support.fake_data_service import FakeDataService

_END: Any = vars(grpc.aio)["EOF"]


def _rpc_error(code: grpc.StatusCode, details: str, metadata: Any = ()) -> grpc.aio.AioRpcError:
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, grpc.aio.Metadata(*metadata), details, None)


class _Context:
    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        given: Any = status
        raise _rpc_error(given.code, given.details, given.trailing_metadata)


class MemoryCall:
    """One bidirectional Publish call, from the client's side."""

    def __init__(self, service: FakeDataService) -> None:
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._responses: asyncio.Queue[Any] = asyncio.Queue()
        self._error: grpc.aio.AioRpcError | None = None
        self._server = asyncio.create_task(self._serve(service))

    async def _serve(self, service: FakeDataService) -> None:
        try:
            async for response in service.Publish(self._requested(), _Context()):
                self._responses.put_nowait(response)
            self._responses.put_nowait(_END)
        except grpc.aio.AioRpcError as error:
            self._responses.put_nowait(error)

    async def _requested(self) -> AsyncIterator[Any]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def write(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        self._requests.put_nowait(data_pb2.PublishRequest.FromString(frame))

    async def done_writing(self) -> None:
        self._requests.put_nowait(None)

    async def read(self) -> Any:
        response = self._error or await self._responses.get()
        response = self._error or response
        if isinstance(response, grpc.aio.AioRpcError):
            raise response
        return response

    def cancel(self) -> None:
        self._server.cancel()

    def break_off(self) -> None:
        """Breaks the connection: what was sent and not received, either way, is lost."""
        self._error = _rpc_error(grpc.StatusCode.UNAVAILABLE, "The test broke the connection.")
        self._server.cancel()
        self._responses.put_nowait(self._error)


class MemoryConnection:
    """As broker.client.connection.Connection, for producers."""

    def __init__(self, service: FakeDataService) -> None:
        self.settings = ClientSettings("127.0.0.1:1", clock_ms=lambda: 1)
        self._service = service
        self._calls: list[MemoryCall] = []

    def publish(self) -> MemoryCall:
        self._calls.append(MemoryCall(self._service))
        return self._calls[-1]

    async def new_producer_id(self) -> int:
        await asyncio.sleep(0)
        return 7

    def backoff(self) -> Backoff:
        return Backoff(0, 0)

    def break_off(self) -> None:
        """The call of the moment, if there is one."""
        if self._calls:
            self._calls[-1].break_off()
