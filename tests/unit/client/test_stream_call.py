"""Calls that the broker ends while the client writes, over a real connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc

from ledgerfold.broker.client.streams.connection import StreamCall
from tests.model.broker_lab import BrokerLab
from tests.support.served_lab import ServedLab, end_of


def test_a_call_refused_while_it_is_written_ends_with_the_reason() -> None:
    """No test had written after gRPC's core received the end and before Python did.

    The end and the write race: with `write` of grpc.aio, nearly all of these calls end with
    INTERNAL.
    """
    lab = BrokerLab()
    served, outgoing = ServedLab(lab), lab.broker.outgoing
    outgoing.streams_max = 0

    async def refused() -> grpc.StatusCode:
        before = outgoing.streams_refused
        call = served.channel.stream_stream("/ledgerfold.v1.DataService/Read")()
        while outgoing.streams_refused == before:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            await StreamCall(call).write(b"")
        error = await end_of(call)
        assert error is not None
        return error.code()

    async def all_codes() -> set[grpc.StatusCode]:
        return {await refused() for _ in range(20)}

    assert served.run(all_codes()) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    served.close()
    lab.stop()


def test_a_call_without_the_private_part_writes_by_the_public_method() -> None:
    class PublicCall:
        """A call of a version of grpcio whose internals differ."""

        def __init__(self) -> None:
            self.frames: list[bytes] = []
            self.read = self.done_writing = self.cancel = None

        async def write(self, frame: bytes) -> None:
            self.frames.append(frame)

    call = PublicCall()
    asyncio.run(StreamCall(call).write(b"frame"))
    assert call.frames == [b"frame"]
