"""Passes over the compacted view under load: each must contain the acknowledged messages.

One at a time on each topic, in the topic's reader process, over restarts of the broker. A pass is
judged against the receipts before its request.
"""

from __future__ import annotations

import threading
import time

from tests.torture.bookkeeping import Books
from tests.torture.clients import Clients
from tests.torture.seen import Latest
from tests.torture.settings import KAFKA_TOPIC, TOPICS, TortureSettings
from tests.torture.tally import Tally

_PAUSE_S = 0.05


class Passes:
    """`judged`: how many came to their end. `hanging`: those that did not, in words."""

    def __init__(
        self, settings: TortureSettings, clients: Clients, books: Books, tally: Tally
    ) -> None:
        self.judged = 0
        self.hanging: set[str] = set()
        self._clients, self._books = clients, books
        self._tally, self._stall_s = tally, settings.client_stall_s
        self._pause_s = settings.pass_pause_s
        self._last_number = 0
        self._next_s = dict.fromkeys((*TOPICS, KAFKA_TOPIC), 0.0)
        # By topic: number, start time, and the expected messages.
        self._asked: dict[str, tuple[int, float, Latest]] = {}

    def go_on(self) -> None:
        """Judges those that ended, and asks for the next ones."""
        self._take()
        for topic in self._next_s:
            if topic not in self._asked and time.monotonic() >= self._next_s[topic]:
                self._last_number += 1
                expected = self._books.snapshot(topic)
                self._asked[topic] = self._last_number, time.monotonic(), expected
                self._clients.readers[topic].tell("pass", number=self._last_number)

    def drain(self) -> None:
        """Judges the passes in progress when they end, or hang; no more are requested."""
        pause = threading.Event()
        while len(self._asked) > len(self.hanging):
            self._take()
            pause.wait(_PAUSE_S)

    def _take(self) -> None:
        for topic, (number, asked_s, expected) in tuple(self._asked.items()):
            answer = self._clients.passes.pop(number, None)
            if answer is not None:
                found, read = answer
                missed = self._books.judge(expected, found, "view")
                if missed:
                    self._tally.tell(f"pass {number} over {topic} missed {missed}: {read}")
                self.judged += 1
                self._next_s[topic] = time.monotonic() + self._pause_s
                del self._asked[topic]
            elif time.monotonic() - asked_s > 2 * self._stall_s:
                self.hanging.add(f"a pass over {topic}")
