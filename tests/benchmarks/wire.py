"""Drives the bulk streams as raw frames, in the same way for the broker and the baseline.

Frames are built in advance, so that only the wire and the server are measured. A publisher keeps at
most WINDOW frames without an answer.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc

from ledgerfold.broker.wire.frames import decode_field, is_bulk
from ledgerfold.v1 import data_pb2
from tests.benchmarks.baseline import OPTIONS

WINDOW = 128
# More than any topic here holds.
_PERMITS = 2**31
_CHECK = data_pb2.ReadRequest(check_id=1).SerializeToString()


class Target(Protocol):
    """The service that frames are published to and read from."""

    async def open_publish(self) -> Any:
        """Opens a stream that accepts frames."""
        ...

    def acknowledged(self, response: bytes) -> int:
        """Returns how many frames its response acknowledges."""
        ...

    def read(self) -> AsyncIterator[bytes]:
        """Reads every frame from the first."""
        ...


class Broker:
    """A topic of the broker; published with one entry per frame."""

    def __init__(self, channel: Any, topic: str, *, read_compacted: bool = False) -> None:
        self._topic, self._read_compacted = topic, read_compacted
        self._publish = channel.stream_stream("/ledgerfold.v1.DataService/Publish")
        self._read = channel.stream_stream("/ledgerfold.v1.DataService/Read")

    async def open_publish(self) -> Any:
        call = self._publish()
        opening = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic=self._topic))
        await call.write(opening.SerializeToString())
        await call.read()
        return call

    def acknowledged(self, response: bytes) -> int:
        receipts = data_pb2.PublishResponse.FromString(response).receipts
        if any(receipt.HasField("refusal") for receipt in receipts):
            raise RuntimeError(f"Not all of it was taken: {response!r}")
        return len(receipts)

    async def read(self) -> AsyncIterator[bytes]:
        call = self._read()
        opening = data_pb2.ReadOpen(
            topic=self._topic,
            start=data_pb2.StartPosition(earliest=True),
            read_compacted=self._read_compacted,
        )
        for request in (
            data_pb2.ReadRequest(open=opening),
            data_pb2.ReadRequest(permits=_PERMITS),
        ):
            await call.write(request.SerializeToString())
        await call.write(_CHECK)
        while (frame := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            if is_bulk(frame):
                yield frame
                continue
            answer = data_pb2.ReadResponse.FromString(frame)
            if answer.end_of_data_check_ids:
                break
            if answer.more_check_ids:
                await call.write(_CHECK)
        call.cancel()


class Bare:
    """A file of the baseline."""

    def __init__(self, channel: Any, name: str) -> None:
        self._metadata = (("file", name),)
        self._append = channel.stream_stream("/baseline/Append")
        self._read = channel.unary_stream("/baseline/Read")

    async def open_publish(self) -> Any:
        return self._append(metadata=self._metadata)

    def acknowledged(self, response: bytes) -> int:
        return int.from_bytes(response, "little")

    async def read(self) -> AsyncIterator[bytes]:
        call = self._read(b"", metadata=self._metadata)
        while (frame := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            yield frame


async def publish(target: Target, frames: Iterable[bytes], window: int = WINDOW) -> float:
    """Returns the seconds from the first frame to the last acknowledgement; `frames` may be
    generated lazily.
    """
    call = await target.open_publish()
    room = asyncio.Semaphore(window)
    began = last = time.perf_counter()

    async def send() -> int:
        sent = 0
        try:
            for frame in frames:
                await room.acquire()
                await call.write(frame)
                sent += 1
        finally:
            # Also if `frames` raises: the responses end, and the error is raised below.
            await call.done_writing()
        return sent

    sending = asyncio.create_task(send())
    done = 0
    while (response := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        count = target.acknowledged(response)
        last = time.perf_counter()
        done += count
        for _ in range(count):
            room.release()
    if not sending.done():
        sending.cancel()
    if await call.code() is not grpc.StatusCode.OK or done != await sending:
        raise RuntimeError(f"{done} frames were acknowledged: {await call.details()}")
    return last - began


async def read(target: Target) -> tuple[float, int, int]:
    """Reads everything; returns seconds, frames, bytes."""
    began = time.perf_counter()
    frames = size = 0
    async for frame in target.read():
        frames += 1
        size += len(frame)
    return time.perf_counter() - began, frames, size


def entries_of(frame: bytes) -> Sequence[memoryview]:
    """Returns the entries of a ReadResponse that holds some."""
    return decode_field(frame, 2)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        yield channel


@contextmanager
def bare_server(folder: Path) -> Iterator[str]:
    """Starts the baseline in a separate process; yields its address."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.benchmarks.baseline", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.communicate()
