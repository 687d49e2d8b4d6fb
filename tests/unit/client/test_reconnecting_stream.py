"""Streams that are interrupted while they connect."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ledgerfold.broker.client.streams.connection import ClientSettings, Connection
from ledgerfold.broker.client.streams.reconnecting_stream import ReconnectingStream
from ledgerfold.storage.errors import (
    AlreadyClosed,
    AuthorizationFailed,
    LedgerfoldError,
    Unavailable,
)
from tests.support.waiting import WAIT_S


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


def test_a_pause_does_not_wait_for_a_silent_broker() -> None:
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
            await asyncio.wait_for(stream.pause(), WAIT_S)
            await asyncio.sleep(0)
            assert stream.calls == calls
            stream.resume()
        await asyncio.wait_for(stream.close(), WAIT_S)
        with pytest.raises(AlreadyClosed):
            await opening
        await connection.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(run(f"127.0.0.1:{silent.getsockname()[1]}"))


class QueuedCall:
    """A call with these answers, until its connection is lost."""

    def __init__(self, answers: list[str], lost: asyncio.Event) -> None:
        self._answers, self._lost = answers, lost

    async def write(self, frame: bytes) -> None: ...

    async def read(self) -> Any:
        if self._answers:
            return self._answers.pop()
        await self._lost.wait()
        raise Unavailable("The test broke the connection.")

    def cancel(self) -> None: ...


class WaitingStream(Stream):
    """Has its place in the queue in its first call; in later ones the broker says nothing."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "test stream")
        self.queued, self.lost, self.connects_again = (asyncio.Event() for _ in range(3))

    def _start_call(self) -> Any:
        self.calls += 1
        if self.calls == 1:
            return QueuedCall(["queued"], self.lost)
        self.connects_again.set()
        return QueuedCall([], asyncio.Event())

    def _is_waiting(self, response: Any) -> bool:
        self.queued.set()
        return bool(response == "queued")


def test_a_lost_connection_restarts_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really_wait = asyncio.wait

    async def run() -> None:
        # One item for each timeout that passes, and one for each that has begun.
        passed, begun = asyncio.Queue[None](), asyncio.Queue[None]()

        async def wait(tasks: Any, *, timeout: float | None = None) -> Any:
            if timeout is None:
                return await really_wait(tasks)
            begun.put_nowait(None)
            timer = asyncio.ensure_future(passed.get())
            done, left = await really_wait({*tasks, timer}, return_when=asyncio.FIRST_COMPLETED)
            return done - {timer}, left

        monkeypatch.setattr(asyncio, "wait", wait)
        settings = ClientSettings("127.0.0.1:1", starting_backoff_interval_ms=1)
        connection = Connection(settings)
        stream = WaitingStream(connection)
        opening = asyncio.ensure_future(stream.open())

        async def time_passes() -> None:
            passed.put_nowait(None)
            await begun.get()

        await begun.get()
        await stream.queued.wait()
        await time_passes()
        stream.lost.set()
        await stream.connects_again.wait()
        await time_passes()
        assert not opening.done()
        passed.put_nowait(None)
        with pytest.raises(Unavailable, match="broke"):
            await opening
        await connection.close()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


class RefusedCall:
    """A call that the broker refused before its opening was written, as grpc.aio does it."""

    async def write(self, frame: bytes) -> None:
        raise asyncio.InvalidStateError("RPC already finished.")

    async def read(self) -> Any:
        raise AuthorizationFailed("The role has no grant.")

    def cancel(self) -> None: ...


class RefusedStream(Stream):
    """Is refused at once."""

    def _start_call(self) -> Any:
        self.calls += 1
        return RefusedCall()


def test_a_call_refused_before_its_opening_ends_with_the_reason() -> None:
    """Real brokers answered too late: no test refused a call before the client wrote."""

    async def run() -> None:
        connection = Connection(ClientSettings("127.0.0.1:1"))
        stream = RefusedStream(connection, "test stream")
        with pytest.raises(AuthorizationFailed):
            await stream.open()
        assert stream.calls == 1
        await connection.close()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
