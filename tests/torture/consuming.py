"""A durable consumer in a separate process: `python -m tests.torture.consuming TASK`.

It must receive every message of its topic, in order, each producer's without a gap, and
acknowledges the received ones: some individually, some cumulatively. After a restart some are
redelivered under the same ids; then their content must be the same. Now and then it is closed and
subscribes again.

Reports {"event": "gap", "producer": P, "first": S, "last": S} for what was never given to it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import closing

from ledgerfold.broker.client import Consumer, InitialPosition, Message, MessageId
from ledgerfold.storage.errors import LedgerfoldError, SubscriptionBusy, Timeout
from tests.torture.child import PROGRESS_S, Child
from tests.torture.messages import Messages
from tests.torture.seen import is_as_sent

_WAIT_MS = 500
_OPEN_S = (5.0, 40.0)
# Ids of messages that may be redelivered: more than a consumer can hold unacknowledged.
_REMEMBERED_MAX = 200_000


class Audit:
    """The messages given to the consumer, in all its lives."""

    def __init__(self, child: Child) -> None:
        self._child, task = child, child.task
        self._messages = {name: Messages(name, task["seed"]) for name in task["producers"]}
        self.last = dict.fromkeys(task["producers"], -1)
        self._last_id = MessageId.earliest
        self._recent: OrderedDict[MessageId, int] = OrderedDict()
        self.count = 0

    def take(self, message: Message) -> None:
        self.count += 1
        name, sequence_id = message.producer_name(), message.sequence_id()
        at = message.message_id()
        if name not in self._messages or not is_as_sent(message, self._messages[name], sequence_id):
            self._tell("foreign", name, sequence_id)
        elif at <= self._last_id:
            if self._recent.get(at, sequence_id) != sequence_id:
                self._tell("disorder", name, sequence_id)
        else:
            self._last_id = self._remember(at, sequence_id)
            self._hold_to_order(name, sequence_id)

    def _remember(self, at: MessageId, sequence_id: int) -> MessageId:
        self._recent[at] = sequence_id
        if len(self._recent) > _REMEMBERED_MAX:
            self._recent.popitem(last=False)
        return at

    def _hold_to_order(self, name: str, sequence_id: int) -> None:
        last = self.last[name]
        if sequence_id <= last:
            self._tell("duplicate", name, sequence_id)
            return
        if sequence_id > last + 1:
            self._child.report("gap", producer=name, first=last + 1, last=sequence_id - 1)
        self.last[name] = sequence_id

    def _tell(self, kind: str, producer: str, sequence_id: int) -> None:
        self._child.report(kind, producer=producer, sequence_id=sequence_id, where="consumer")


class Consuming:
    """One consumer after the other."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._client = child.client()
        self.audit = Audit(child)
        self.polls = 0

    def run(self) -> None:
        while not self._child.is_ending.is_set():
            try:
                self._live()
            except SubscriptionBusy:
                # Our previous process.
                self._child.pause(0.3)
            except LedgerfoldError as error:
                self._child.fault("consumer", error)

    def _live(self) -> None:
        deadline_s = time.monotonic() + self._child.random.uniform(*_OPEN_S)
        task = self._child.task
        with closing(
            self._client.subscribe(
                task["topic"],
                task["subscription"],
                initial_position=InitialPosition.Earliest,
                receiver_queue_size=self._child.random.choice((10, 1000)),
            )
        ) as consumer:
            while time.monotonic() < deadline_s:
                try:
                    message = consumer.receive(_WAIT_MS)
                except Timeout:
                    continue
                finally:
                    self.polls += 1
                self.audit.take(message)
                self._acknowledge(consumer, message)

    def _acknowledge(self, consumer: Consumer, message: Message) -> None:
        if self.polls // 1000 % 2:
            consumer.acknowledge(message)
        elif self.polls % 100 == 0 or self.polls % 1000 > 900:
            consumer.acknowledge_cumulative(message)


def main() -> None:
    child = Child()
    consuming = Consuming(child)
    threading.Thread(target=consuming.run, daemon=True).start()
    while not child.is_ending.wait(PROGRESS_S):
        child.report("read", what="consumer", steps=consuming.polls)
        child.report("consumed", last=dict(consuming.audit.last))
    child.end()


if __name__ == "__main__":
    main()
