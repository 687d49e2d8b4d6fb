"""The minimal server that publish and read are compared with: only grpc.aio and a file.

    python -m tests.benchmarks.baseline DIR     prints its port; ends when its standard input does

Two streams of raw frames, with identity (de)serialisers:

    /baseline/Append   frames in; appends them to a file as they are, one writev and one fdatasync
                       for all that wait (group commit), and answers each group with its count
    /baseline/Read     the same frames out again, each with one pread

The metadata `file` has the file's name. No checks, no ids, no index, no metadata: it measures
grpc.aio and the disk alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

# Linux takes at most 1024 buffers in one writev.
_BUFFERS_MAX = 1024
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class Appending:
    """One Append stream: frames wait here until the previous group is on disk."""

    def __init__(self, descriptor: int, sizes: list[int]) -> None:
        self._descriptor = descriptor
        self._sizes = sizes
        self._waiting: list[bytes] = []
        self._news = asyncio.Event()
        self._is_over = False

    async def receive(self, context: Any) -> None:
        while (frame := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            self._waiting.append(frame)
            self._news.set()
        self._is_over = True
        self._news.set()

    async def groups(self) -> AsyncIterator[int]:
        """Returns how many frames became durable, group after group."""
        while True:
            await self._news.wait()
            self._news.clear()
            group, self._waiting = self._waiting, []
            if group:
                await asyncio.to_thread(self._write, group)
                self._sizes += map(len, group)
                yield len(group)
            elif self._is_over:
                return
            if self._waiting or self._is_over:
                self._news.set()

    def _write(self, group: list[bytes]) -> None:
        for first in range(0, len(group), _BUFFERS_MAX):
            buffers = group[first : first + _BUFFERS_MAX]
            written = os.writev(self._descriptor, buffers)
            if written < sum(map(len, buffers)):
                raise OSError("a short write: the disk is full")
        os.fdatasync(self._descriptor)


class Baseline:
    """The two methods. `_frames`: the sizes of each file's frames, in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._frames: dict[str, list[int]] = {}

    def handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        return grpc.method_handlers_generic_handler(
            "baseline",
            {
                "Append": grpc.stream_stream_rpc_method_handler(self.append),
                "Read": grpc.unary_stream_rpc_method_handler(self.read),
            },
        )

    async def append(self, requests: Any, context: Any) -> None:
        name = _file(context)
        sizes = self._frames.setdefault(name, [])
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        appending = Appending(descriptor, sizes)
        receiver = asyncio.create_task(appending.receive(context))
        try:
            async for count in appending.groups():
                await context.write(count.to_bytes(4, "little"))
            await receiver
        finally:
            receiver.cancel()
            os.close(descriptor)

    async def read(self, request: bytes, context: Any) -> None:
        name = _file(context)
        descriptor = os.open(self._folder / name, os.O_RDONLY)
        offset = 0
        try:
            for size in self._frames[name]:
                await context.write(os.pread(descriptor, size, offset))
                offset += size
        finally:
            os.close(descriptor)


def _file(context: Any) -> str:
    return next(str(value) for key, value in context.invocation_metadata() if key == "file")


async def _serve(folder: Path) -> None:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Baseline(folder).handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
