"""Bounds of all streams together: how many, and how much was read for them and not sent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from ledgerfold.broker.common import outgoing as module
from ledgerfold.broker.common.outgoing import READ_LEAST, READ_PART, Outgoing, Share
from ledgerfold.storage.errors import Overloaded
from tests.support.waiting import WAIT_S

KIB = 1024


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), WAIT_S))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours pass from one look at the clock to the next."""
    hours = itertools.count(0, 3600)
    monkeypatch.setattr(module, "_now_s", lambda: float(next(hours)))
    monkeypatch.setattr(module, "_CHECK_S", 0.001)


def test_a_stream_beyond_the_limit_is_refused() -> None:
    """It is refused, counted, and the next one is taken when another has ended."""
    outgoing = Outgoing(streams_max=2)
    with outgoing.stream(), outgoing.stream():
        with pytest.raises(Overloaded, match=r"has 2 streams .*serve --streams-max"):
            outgoing.stream().__enter__()
        assert (outgoing.streams, outgoing.streams_refused) == (2, 1)
    with outgoing.stream():
        assert outgoing.streams == 1
    assert (outgoing.streams, outgoing.streams_refused) == (0, 1)


def test_reads_get_smaller_as_space_gets_scarce() -> None:
    """A read takes a part of the rest, and at least the minimum, so that many get some."""
    outgoing = Outgoing(bytes_max=64 * READ_PART * KIB)
    most, granted = 1024 * KIB, list[int]()
    while (share := outgoing.share()).reserve(most):
        granted.append(share.size_bytes)
    assert granted == sorted(granted, reverse=True)
    assert (granted[0], granted[-1]) == (READ_LEAST, READ_LEAST)
    assert sum(granted) == outgoing.unsent_bytes <= outgoing.bytes_max
    wide = Outgoing(bytes_max=256 * 1024 * KIB)
    assert [wide.share().reserve(most) for _ in range(1000)].count(True) > 400


def test_space_is_granted_in_order_of_arrival() -> None:
    """Waiting streams get freed space in order; streams that left are skipped."""

    async def body() -> None:
        outgoing = Outgoing(bytes_max=READ_LEAST)
        first, never = outgoing.share(), asyncio.Event()
        assert first.reserve(READ_LEAST)
        shares = [outgoing.share() for _ in range(3)]
        waiting = [asyncio.create_task(each.reserve_or(READ_LEAST, never)) for each in shares]
        await turns()
        assert not any(each.done() for each in waiting)
        # No stream overtakes them.
        assert not outgoing.share().reserve(1)
        waiting[0].cancel()
        first.hold(0)
        await turns()
        assert [each.size_bytes for each in shares] == [0, READ_LEAST, 0]
        shares[1].close()
        await turns()
        assert await waiting[2]
        assert (outgoing.unsent_bytes, len(outgoing.waiting)) == (READ_LEAST, 0)
        shares[2].close()
        assert outgoing.unsent_bytes == 0

    run(body)


def test_a_stream_that_left_does_not_block_others() -> None:
    """For example, its client left: it holds no space and blocks no other."""

    async def body() -> None:
        outgoing = Outgoing(bytes_max=READ_LEAST)
        holder, asked = outgoing.share(), asyncio.Event()
        assert holder.reserve(READ_LEAST)
        share = outgoing.share()
        waiting = asyncio.create_task(share.reserve_or(READ_LEAST, asked))
        await turns()
        asked.set()
        assert not await waiting
        assert share.size_bytes == 0
        holder.hold(0)
        assert outgoing.share().reserve(READ_LEAST)

    run(body)


def test_prefetched_entries_are_dropped_first(impatient: None) -> None:
    """No stream is ended for it."""

    async def body() -> None:
        outgoing, dropped = Outgoing(bytes_max=READ_LEAST), list[Share]()

        def shed() -> None:
            dropped.append(idle)
            idle.hold(0)

        idle = outgoing.share(shed)
        assert idle.reserve(READ_LEAST)
        assert await outgoing.share().reserve_or(READ_LEAST, asyncio.Event())
        assert dropped == [idle]
        assert outgoing.streams_ended == 0

    run(body)


def test_a_client_that_reads_nothing_is_disconnected(impatient: None) -> None:
    """The one that has been sending longest, as many as are needed; once."""

    async def body() -> None:
        outgoing, ended = Outgoing(bytes_max=2 * READ_LEAST), list[str]()
        shares = {}
        for name in ("longest", "longer"):
            share = shares[name] = outgoing.share()
            assert share.reserve(READ_LEAST)
            share.sending()
            share.on_overrun(partial(ended.append, name))
        one = asyncio.create_task(outgoing.share().reserve_or(READ_LEAST, asyncio.Event()))
        await turns()
        assert ended == ["longest"]
        error = shares["longest"].error
        assert error is not None
        assert "read none of 65536 bytes" in error.message
        assert "serve --unsent-max" in error.message
        assert not one.done()
        outgoing._make_room()
        assert (ended, outgoing.streams_ended) == (["longest"], 1)
        shares["longest"].close()
        assert await one
        # One that has sent it all is not ended.
        shares["longer"].sent()
        another = asyncio.create_task(outgoing.share().reserve_or(READ_LEAST, asyncio.Event()))
        await turns()
        outgoing._make_room()
        assert ended == ["longest"]
        another.cancel()

    run(body)


def test_one_entry_may_exceed_the_whole_limit() -> None:
    """It is read when there is room for the least; then nothing else is."""
    outgoing = Outgoing(bytes_max=READ_LEAST)
    share = outgoing.share()
    assert share.reserve(READ_LEAST)
    share.hold(16 * READ_LEAST)
    assert not outgoing.share().reserve(1)
    share.hold(0)
    assert outgoing.share().reserve(READ_LEAST)
