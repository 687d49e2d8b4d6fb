"""Streams that are interrupted while they connect."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ledgerfold.broker.client.streams.connection import ClientSettings, Connection
from ledgerfold.broker.client.streams.reconnecting_stream import ReconnectingStream
from ledgerfold.storage.errors import AlreadyClosed, LedgerfoldError


class Stream(ReconnectingStream):
    """Counts its calls."""

    calls = 0

    def _start_call(self) -> Any:
        self.calls += 1
        return self.connection.subscribe()

    def _open_frame(self) -> bytes:
        return b""

    def _on_open(self, response: Any) -> None: ...

    def _on_response(self, response: Any) -> None: ...

    def _next_frame(self) -> bytes | None: ...

    def _on_disconnect(self) -> None: ...

    def _on_end(self, error: LedgerfoldError) -> None: ...


def test_a_pause_does_not_wait_for_a_broker_that_says_nothing() -> None:
    """Nor does the next call begin before the stream may connect again."""

    async def run(address: str) -> None:
        connection = Connection(ClientSettings(address))
        stream = Stream(connection, "test stream")
        opening = asyncio.ensure_future(stream.open())
        for calls in (1, 2):
            # Two turns of the loop: the call began, and waits for the channel.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert stream.calls == calls
            await asyncio.wait_for(stream.pause(), 10)
            await asyncio.sleep(0)
            assert stream.calls == calls
            stream.resume()
        await asyncio.wait_for(stream.close(), 10)
        with pytest.raises(AlreadyClosed):
            await opening
        await connection.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(run(f"127.0.0.1:{silent.getsockname()[1]}"))
