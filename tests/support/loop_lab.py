"""A broker in memory (tests/model/broker_lab.py) whose loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ledgerfold.storage.entry import Position
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message
from tests.support.waiting import WAIT_S

T = TypeVar("T")


class LoopLab:
    """`stop`: what ends before the broker does."""

    def __init__(self, lab: BrokerLab, stop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.lab, self.broker, self._stop = lab, lab.broker, stop
        self._thread = threading.Thread(target=self.lab.loop.run_forever, daemon=True)
        self._thread.start()

    def on_loop(self, work: Callable[[], T]) -> T:
        """Calls in the broker's thread, between two of its turns."""

        async def call() -> T:
            return work()

        return self.run(call())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.lab.loop).result(WAIT_S)

    def publish(self, *entries: tuple[list[Message], bool]) -> list[Position]:
        """To the lab's topic; pairs with `is_batch`."""
        return self.run(self.lab.publishing(entries))

    def close(self) -> None:
        self.run(self._stop())
        self.lab.loop.call_soon_threadsafe(self.lab.loop.stop)
        self._thread.join()
        self.lab.stop()
