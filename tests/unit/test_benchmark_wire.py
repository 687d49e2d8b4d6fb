"""The benchmarks' publisher, against a call in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from tests.benchmarks import wire
from tests.support.waiting import WAIT_S


class EchoCall:
    """Acknowledges each frame; its responses end when the requests do."""

    def __init__(self) -> None:
        self._responses: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, frame: bytes) -> None:
        self._responses.put_nowait(frame)

    async def done_writing(self) -> None:
        self._responses.put_nowait(grpc.aio.EOF)  # type: ignore[attr-defined]

    async def read(self) -> Any:
        return await self._responses.get()

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""


class Echo:
    async def open_publish(self) -> EchoCall:
        return EchoCall()

    def acknowledged(self, response: bytes) -> int:
        return 1

    async def read(self) -> AsyncIterator[bytes]:
        raise NotImplementedError
        yield b""


async def publish(frames: Iterator[bytes]) -> float:
    return await asyncio.wait_for(wire.publish(Echo(), frames, window=2), WAIT_S)


def test_generated_frames_are_published() -> None:
    assert asyncio.run(publish(iter([b"frame"] * 5))) >= 0


def test_an_error_of_the_frames_ends_the_publishing() -> None:
    def frames() -> Iterator[bytes]:
        yield b"frame"
        raise ValueError("No more frames.")

    with pytest.raises(ValueError, match="No more frames"):
        asyncio.run(publish(frames()))
