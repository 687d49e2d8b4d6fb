"""Tests how a stream's two tasks end: neither remains, whatever happens to the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from ledgerfold.broker.rpc.stream import EOF, exchange, peer_of
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from tests.support.waiting import WAIT_S


class Fed:
    """The parts of a stream. Also a context, whose frames come from `requests`."""

    def __init__(self, *frames: object) -> None:
        self.requests: asyncio.Queue[Any] = asyncio.Queue()
        for frame in frames:
            self.requests.put_nowait(frame)
        self.taken: list[bytes] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read(self) -> Any:
        return await self.requests.get()

    def finish(self) -> None:
        self.over.set_result(None)

    def end(self, error: LedgerfoldError) -> None:
        self.over.set_exception(error)

    async def take(self, frame: bytes) -> None:
        if frame == b"refused":
            raise InvalidRequest("No.")
        if frame == b"defect":
            raise KeyError("not thought of")
        self.taken.append(frame)

    async def deliver(self) -> None:
        await self.over

    async def break_off(self) -> None:
        """As a deliverer with a defect, once something was taken."""
        while not self.taken:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        raise KeyError("not thought of")


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(WAIT_S):
            await test()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left"

    asyncio.run(whole())


def serve(fed: Fed, deliver: Callable[[], Coroutine[Any, Any, None]]) -> Awaitable[None]:
    return exchange(cast(Any, fed), fed, fed.take, deliver())


def test_a_stream_ends_after_its_last_response() -> None:
    """After the client's last word, here."""

    async def test() -> None:
        fed = Fed(b"a", b"b", EOF)
        await serve(fed, fed.deliver)
        assert fed.taken == [b"a", b"b"]

    run(test)


@pytest.mark.parametrize(
    ("frame", "expected"), [(b"refused", InvalidRequest), (b"defect", KeyError)]
)
def test_a_rejected_frame_ends_the_stream(frame: bytes, expected: type[Exception]) -> None:
    """Nothing behind it is looked at. Only a refusal reaches the feeding task."""

    async def test() -> None:
        fed = Fed(b"a", frame, b"b")
        with pytest.raises(expected):
            await serve(fed, fed.deliver)
        assert fed.taken == [b"a"]
        assert fed.over.cancelled() == (expected is KeyError)

    run(test)


def test_a_defect_in_the_delivery_ends_the_feeding_task() -> None:
    async def test() -> None:
        fed = Fed(b"a")
        with pytest.raises(KeyError):
            await serve(fed, fed.break_off)

    run(test)


def test_a_disconnected_client_leaves_no_task() -> None:
    """gRPC cancels the handler."""

    async def test() -> None:
        fed = Fed(b"a")
        handler = asyncio.ensure_future(serve(fed, fed.deliver))
        while not fed.taken:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        handler.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handler

    run(test)


@pytest.mark.parametrize(
    ("named", "address"),
    [("ipv4:127.0.0.1:45414", "127.0.0.1:45414"), ("ipv6:%5B::1%5D:99", "[::1]:99")],
)
def test_peer_addresses_are_formatted(named: str, address: str) -> None:
    class Context:
        def peer(self) -> str:
            return named

    peer = peer_of(cast(Any, Context()), 1_000, {"team": "prices"})
    assert peer.stats()["address"] == f"/{address}"
    assert peer.stats()["metadata"] == {"team": "prices"}
