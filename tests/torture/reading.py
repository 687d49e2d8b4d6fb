"""The readers of a topic, in a separate process: `python -m tests.torture.reading TASK`.

* A raw and a read-compacted follower stay open over restarts of the broker; now and then each is
  closed, and opened again behind the last id it was given.
* A pass, on command, opens a read-compacted reader at the beginning and reads to where the end was
  when it began.

Commands: {"do": "pass", "number": N} is answered with {"event": "pass", "number": N, "latest": ...}
(tests/torture/seen.py); {"do": "catch-up", "number": N} likewise, with the messages of the
compacted follower once there was nothing more to read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from ledgerfold.broker.client import Client, Message, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import LedgerfoldError, Timeout
from tests.torture.child import PROGRESS_S, Child
from tests.torture.messages import Messages
from tests.torture.seen import Seen, packed

_WAIT_MS = 500
_OPEN_S = (5.0, 30.0)


def _seen(child: Child) -> Seen:
    return Seen({name: Messages(name, child.task["seed"]) for name in child.task["producers"]})


class Follower:
    """Continues after the last received id, after any failure."""

    def __init__(self, child: Child, client: Client, *, is_compacted: bool) -> None:
        self._child, self._client, self._is_compacted = child, client, is_compacted
        self.what = "compacted follower" if is_compacted else "raw follower"
        self.seen = _seen(child)
        # Numbers of "catch-up" commands without an answer.
        self.asked: list[int] = []
        self.polls = 0

    def run(self) -> None:
        while not self._child.is_ending.is_set():
            try:
                self._live()
            except LedgerfoldError as error:
                self._child.fault(self.what, error)

    def _live(self) -> None:
        deadline_s = time.monotonic() + self._child.random.uniform(*_OPEN_S)
        with closing(
            self._client.create_reader(
                self._child.task["topic"],
                self.seen.last_id,
                is_read_compacted=self._is_compacted,
                receiver_queue_size=self._child.random.choice((1, 100, 1000)),
            )
        ) as reader:
            while time.monotonic() < deadline_s or self.asked:
                # Requests from before the end are answered by it.
                asked = tuple(self.asked)
                for message in reader:
                    self.seen.take(message)
                    if time.monotonic() > deadline_s and not asked:
                        return
                self._answer(asked)
                try:
                    self.seen.take(reader.read_next(_WAIT_MS))
                except Timeout:
                    continue
                finally:
                    self.polls += 1

    def _answer(self, asked: tuple[int, ...]) -> None:
        for number in asked:
            read = f"{self.seen.count} messages up to {self.seen.last_id}"
            self._child.report("pass", number=number, latest=packed(self.seen.latest), read=read)
            self.asked.remove(number)


def read_view(client: Client, topic: str, upto: MessageId) -> Iterator[Message]:
    """The compacted view from the beginning to `upto`; to its end, if that is `earliest`."""
    with closing(client.create_reader(topic, MessageId.earliest, is_read_compacted=True)) as reader:
        for message in reader:
            yield message
            if MessageId.earliest != upto <= message.message_id():
                return


class Passes:
    """Carries out one after the other."""

    def __init__(self, child: Child, client: Client) -> None:
        self._child, self._client = child, client
        self.asked: list[int] = []

    def run(self) -> None:
        idle = threading.Event()
        while not self._child.is_ending.is_set():
            if not self.asked:
                idle.wait(PROGRESS_S)
                continue
            try:
                self._carry_out(self.asked[0])
                self.asked.pop(0)
            except LedgerfoldError as error:
                self._child.fault("pass", error)

    def _carry_out(self, number: int) -> None:
        seen, topic = _seen(self._child), self._child.task["topic"]
        with closing(Admin(self._child.task["url"])) as admin:
            # The raw log may be empty, and the compacted ledger not.
            upto = max(admin.last_message_id(topic, read_compacted=each) for each in (False, True))
        for message in read_view(self._client, topic, upto):
            seen.take(message)
        report_problems(self._child, "pass", seen)
        read = f"{seen.count} messages up to {seen.last_id}, {upto} was the last"
        self._child.report("pass", number=number, latest=packed(seen.latest), read=read)


def report_problems(child: Child, where: str, seen: Seen) -> None:
    for kind, producer, sequence_id in seen.take_problems():
        child.report(kind, producer=producer, sequence_id=sequence_id, where=where)


def serve(child: Child, followers: Sequence[Follower], passes: Passes) -> None:
    """The process's whole life. The last follower is the one that catches up."""
    for run in (*(each.run for each in followers), passes.run):
        threading.Thread(target=run, daemon=True).start()
    while not child.is_ending.wait(PROGRESS_S):
        while not child.commands.empty():
            command = child.commands.get()
            if command["do"] == "pass":
                passes.asked.append(command["number"])
            elif command["do"] == "catch-up":
                followers[-1].asked.append(command["number"])
        for each in followers:
            report_problems(child, each.what, each.seen)
            child.report("read", what=each.what, steps=each.seen.count + each.polls)
    child.end()


def main() -> None:
    child = Child()
    client = child.client()
    followers = [Follower(child, client, is_compacted=each) for each in (False, True)]
    serve(child, followers, Passes(child, client))


if __name__ == "__main__":
    main()
