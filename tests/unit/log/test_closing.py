"""The end of a log: the next owner finds no writer."""

from __future__ import annotations

import asyncio

from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.held_executor import HeldExecutor


def test_an_unload_waits_until_the_file_is_closed() -> None:
    """A thread may still be in the call that closes it."""
    lab = BrokerLab()
    lab.publish([([Message(b"k", b"v")], False)])
    held = HeldExecutor()

    async def unload() -> None:
        lab.broker.topics[TOPIC].log._files.executor = held
        held.holds = True
        unloading = asyncio.ensure_future(lab.broker.unload_topic(TOPIC))
        for _ in range(200):
            await asyncio.sleep(0)
            if held.waiting and not unloading.done():
                # In any wait, it does not end before that is done.
                for _ in range(50):
                    await asyncio.sleep(0)
                assert not unloading.done()
                held.let_go(1)
        assert held.waiting == 0
        held.free()
        await unloading

    lab.run(unload())
    lab.stop()
