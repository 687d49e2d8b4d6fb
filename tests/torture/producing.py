"""A producer in a separate process: `python -m tests.torture.producing TASK`.

It sends sequence ids 0, 1, 2 ... under one name, over restarts of the broker. When its stream has
ended for good (a full disk), it creates a producer again under that name and repeats what has no
receipt. It alternates two ways: it repeats all, and the broker must recognise duplicates; or it
continues after the broker's last sequence id, up to which everything must exist. With batches only
the second works: the second time, batches may be cut differently.

Reports: {"event": "progress", "sent": last, "acknowledged": last}. Commands: {"do": "finish"} until
everything has its receipt, {"do": "more", "count": N}.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ledgerfold.broker.client import Client, MessageId, Producer, Result
from ledgerfold.storage.errors import LedgerfoldError, ProducerBusy
from tests.torture.child import PROGRESS_S, Child
from tests.torture.messages import COLD_KEYS, Messages

# In flight at most. tests/torture/bookkeeping.py knows this bound.
WINDOW = 1_000
_BURST_MAX = 300


class Sender:
    """`sent` and `acknowledged` are sequence ids, -1 for none; the latter is a prefix always."""

    def __init__(self, child: Child) -> None:
        self._child, task = child, child.task
        self._messages = Messages(task["name"], task["seed"])
        self._rate, self._is_batching = task["rate"], task["batching"]
        self.sent = self.acknowledged = -1
        # None: sends on and on.
        self.goal: int | None = None
        self._life = 0
        self._has_failed = False
        self._last_id = MessageId.earliest
        self._changed = threading.Condition()

    @property
    def is_finished(self) -> bool:
        return self.goal is not None and self.acknowledged >= self.goal

    def run(self, client: Client) -> None:
        while not self._child.is_ending.is_set():
            try:
                self._live(client)
            except ProducerBusy:
                # Our previous process.
                self._child.pause(0.3)
            except LedgerfoldError as error:
                self._child.fault("producer", error)

    def _live(self, client: Client) -> None:
        """With one producer, until it fails."""
        trusts = self._is_batching or self._child.random.random() < 0.5
        producer = client.create_producer(
            self._child.task["topic"],
            self._child.task["name"],
            initial_sequence_id=None if trusts else self.acknowledged,
            send_timeout_millis=0,
            max_pending_messages=0,
            batching_enabled=self._is_batching,
            batching_max_messages=20,
            batching_max_publish_delay_ms=5,
        )
        stored = producer.last_sequence_id()
        with self._changed:
            if stored < self.acknowledged:
                message = f"the broker has up to {stored}, and acknowledged {self.acknowledged}"
                self._child.report("error", what="producer", message=message)
            elif trusts:
                self.acknowledged = stored
            self._life += 1
            self._has_failed = False
        try:
            self._send_all(producer, self.acknowledged + 1)
        finally:
            producer.close()
            self._child.pause(0.3)

    def _send_all(self, producer: Producer, sequence_id: int) -> None:
        pause = threading.Event()
        while self._may_go_on():
            began_s = time.monotonic()
            burst = self._child.random.randint(1, _BURST_MAX)
            for _ in range(burst):
                if not self._has_room(sequence_id):
                    break
                self.sent = max(self.sent, sequence_id)
                producer.send_async(
                    self._messages.content(sequence_id),
                    functools.partial(self._on_answer, self._life, sequence_id),
                    partition_key=self._messages.key(sequence_id),
                    sequence_id=sequence_id,
                    # 0 is none.
                    event_timestamp=sequence_id + 1,
                )
                sequence_id += 1
            # Writes the first round of keys at full speed, so that there is something to compact.
            due_s = burst / self._rate if self.acknowledged > 2 * COLD_KEYS else 0.0
            pause.wait(max(0.01, due_s - (time.monotonic() - began_s)))

    def _may_go_on(self) -> bool:
        return not self._has_failed and not self._child.is_ending.is_set()

    def _has_room(self, sequence_id: int) -> bool:
        if self.goal is not None and sequence_id > self.goal:
            return False
        with self._changed:
            self._changed.wait_for(
                lambda: self._has_failed or sequence_id - self.acknowledged <= WINDOW, PROGRESS_S
            )
            return not self._has_failed and sequence_id - self.acknowledged <= WINDOW

    def _on_answer(
        self, life: int, sequence_id: int, result: Result, message_id: MessageId | None
    ) -> None:
        with self._changed:
            if life != self._life:
                return
            if result is not Result.Ok:
                self._fail(result)
            elif not self._has_failed:
                self._take_receipt(sequence_id, message_id)
            self._changed.notify_all()

    def _fail(self, result: Result) -> None:
        if not self._has_failed and result is not Result.BrokerPersistenceError:
            self._child.report("error", what="producer", message=f"a message ended: {result.name}")
        self._has_failed = True

    def _take_receipt(self, sequence_id: int, message_id: MessageId | None) -> None:
        is_next = sequence_id == self.acknowledged + 1
        if message_id is not None and message_id.ledger_id() >= 0:
            is_next &= message_id > self._last_id
            self._last_id = message_id
        if not is_next:
            self._child.report("disorder", sequence_id=sequence_id, where="receipts")
        self.acknowledged = max(self.acknowledged, sequence_id)


class AnySender(Protocol):
    """`sent` and `acknowledged` are sequence ids, -1 for none; the latter is a prefix always."""

    sent: int
    acknowledged: int
    # None: sends on and on.
    goal: int | None

    @property
    def is_finished(self) -> bool: ...
    def run(self, client: Client) -> None: ...


def serve(make: Callable[[Child], AnySender]) -> None:
    """The process's whole life."""
    child = Child()
    sender = make(child)
    client = child.client()
    threading.Thread(target=sender.run, args=(client,), daemon=True).start()
    while not child.is_ending.wait(PROGRESS_S):
        # Read in this order, so that nothing counts as acknowledged that was not sent.
        acknowledged, sent = sender.acknowledged, sender.sent
        child.report("progress", sent=max(sent, acknowledged), acknowledged=acknowledged)
        while not child.commands.empty():
            command = child.commands.get()
            if command["do"] == "finish":
                sender.goal = sender.sent
            elif command["do"] == "more":
                sender.goal = max(sender.sent, sender.acknowledged) + int(command["count"])
        if sender.is_finished:
            child.report("finished", sent=sender.sent, acknowledged=sender.acknowledged)
    child.end()


if __name__ == "__main__":
    serve(Sender)
