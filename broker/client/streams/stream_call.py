"""A bidirectional call of gRPC, which ends with the broker's reason, whatever is being written."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc


class StreamCall:
    """Wraps a call of grpc.aio without a request serializer."""

    def __init__(self, call: Any) -> None:
        self._call = call
        # Not public: another version of grpcio may not have it.
        self._core_call = getattr(call, "_cython_call", None)
        self.read = call.read
        self.done_writing = call.done_writing
        self.cancel = call.cancel

    async def write(self, frame: bytes) -> None:
        """Raises asyncio.InvalidStateError if the call has ended: read() raises the reason.

        NOTE: `write` of grpc.aio would replace the broker's status by INTERNAL, "Internal error
        from Core", when Core learns of the end before Python does.
        """
        if self._core_call is None:
            await self._call.write(frame)
            return
        await self._call.wait_for_connection()
        try:
            await self._core_call.send_serialized_message(frame)
        except grpc.aio.InternalError as error:
            raise asyncio.InvalidStateError("The call has ended.") from error
