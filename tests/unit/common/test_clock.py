"""The clock that is moved by hand: it does not advance, wakes sleepers, and waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ledgerfold.broker.common.clock import LAST_MS, ManualClock
from ledgerfold.storage.errors import InvalidRequest
from tests.support.waiting import WAIT_S


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(WAIT_S):
            await work

    asyncio.run(limited())


def test_time_stops_until_it_is_moved() -> None:
    async def body() -> None:
        clock = ManualClock(1_000)
        assert clock.now_ms() == 1_000
        await clock.move_to(1_500)
        await clock.move_to(1_500)
        assert clock.now_ms() == 1_500

    run(body())


def test_time_does_not_move_backwards() -> None:
    """Ages and retention would be nonsense."""

    async def body() -> None:
        clock = ManualClock(1_000)
        with pytest.raises(InvalidRequest, match="forwards"):
            await clock.move_to(999)
        assert clock.now_ms() == 1_000

    run(body())


def test_redeliveries_are_due_in_the_order_of_their_times() -> None:
    """All due ones happen at the new time; later and cancelled ones do not."""

    async def body() -> None:
        clock, found = ManualClock(0), list[tuple[str, int]]()

        def add(name: str) -> None:
            found.append((name, clock.now_ms()))

        clock.call_later(2, lambda: add("second"))
        clock.call_later(1, lambda: add("first"))
        clock.call_later(2, lambda: add("third"))
        clock.call_later(3.001, lambda: add("later"))
        clock.call_later(1, lambda: add("cancelled")).cancel()
        await clock.move_to(3_000)
        assert found == [("first", 3_000), ("second", 3_000), ("third", 3_000)]

    run(body())


def test_a_callback_may_cancel_another_due_one() -> None:
    async def body() -> None:
        clock, found = ManualClock(0), list[str]()
        second = clock.call_later(2, lambda: found.append("second"))
        clock.call_later(1, second.cancel)
        await clock.move_to(2_000)
        assert found == []

    run(body())


def test_a_move_ends_when_the_woken_tasks_sleep_again() -> None:
    """However many turns of the loop their work takes; a periodic task runs once a move."""

    async def body() -> None:
        clock, done = ManualClock(0), list[int]()

        async def periodic() -> None:
            while True:
                await clock.sleep(60)
                for _ in range(50):
                    await asyncio.sleep(0)
                done.append(clock.now_ms())

        task = asyncio.create_task(periodic())
        await asyncio.sleep(0)
        for to_ms, expected in ((59_999, []), (60_000, [60_000]), (600_000, [60_000, 600_000])):
            await clock.move_to(to_ms)
            assert done == expected
        await clock.move_to(659_999)
        assert len(done) == 2
        task.cancel()

    run(body())


def test_a_move_does_not_wait_for_ended_or_cancelled_tasks() -> None:
    async def body() -> None:
        clock, done = ManualClock(0), list[str]()

        async def once(name: str) -> None:
            await clock.sleep(1)
            await asyncio.sleep(0)
            done.append(name)

        tasks = [asyncio.create_task(once(name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await clock.move_to(1_000)
        assert done == ["a"]
        await clock.move_to(5_000)

    run(body())


def test_zero_delay_needs_no_move() -> None:
    async def body() -> None:
        called = asyncio.Event()
        ManualClock(0).call_later(0, called.set)
        await called.wait()

    run(body())


def test_a_clock_ends_with_the_year_9999() -> None:
    """Beyond it no date could be shown, and no record written."""
    clock = ManualClock(0)
    with pytest.raises(InvalidRequest, match="9999"):
        asyncio.run(clock.move_to(LAST_MS + 1))
    assert clock.now_ms() == 0
    asyncio.run(clock.move_to(LAST_MS))
