"""Opening the streams of several partitions: all, or none, and the first one before the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledgerfold.broker.client.core.partition_set import open_all
from ledgerfold.storage.errors import ProducerBusy
from tests.support.waiting import WAIT_S


class Opened:
    """A stream of one partition, which it holds exclusively."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self.lock = lock

    async def close(self) -> None:
        self.lock.release()


async def taken(lock: asyncio.Lock) -> Any:
    await asyncio.sleep(0)
    await lock.acquire()
    return Opened(lock)


def test_only_one_of_two_concurrent_openings_succeeds() -> None:
    """Opened at the same time, each could hold a partition that the other one waits for."""

    async def scenario() -> None:
        locks = [asyncio.Lock() for _ in range(3)]

        async def hold() -> None:
            for opened in await open_all(map(taken, locks)):
                await opened.close()

        # The second one takes the locks in another order, except for the first.
        async def hold_later() -> None:
            others = [locks[0], locks[2], locks[1]]
            for opened in await open_all(map(taken, others)):
                await opened.close()

        await asyncio.wait_for(asyncio.gather(hold(), hold_later(), hold()), WAIT_S)

    asyncio.run(scenario())


@pytest.mark.parametrize("failing", range(3))
def test_a_failure_closes_the_other_streams(failing: int) -> None:
    async def scenario() -> None:
        locks = [asyncio.Lock() for _ in range(3)]

        async def opening(number: int) -> Any:
            if number == failing:
                raise ProducerBusy("persistent://public/default/t", "p")
            return await taken(locks[number])

        with pytest.raises(ProducerBusy):
            await open_all(map(opening, range(3)))
        assert not any(lock.locked() for lock in locks)

    asyncio.run(scenario())
