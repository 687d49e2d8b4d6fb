"""The messages that one `batch_receive` collects, until its policy is met. No waiting.

>>> batch = ReceivedBatch(ConsumerBatchReceivePolicy(2, -1, 100), now_s=7.0)
>>> batch.deadline_s, batch.is_complete(now_s=7.05), batch.is_complete(now_s=7.1)
(7.1, False, True)
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.policies import ConsumerBatchReceivePolicy


class ReceivedBatch:
    """The messages so far. Times in seconds, on any one clock."""

    def __init__(
        self,
        policy: ConsumerBatchReceivePolicy,
        now_s: float,
        messages: Iterable[Message] = (),
    ) -> None:
        self._policy = policy
        self._bytes = 0
        self.messages: list[Message] = []
        self.deadline_s = now_s + policy.timeout_ms / 1000 if policy.timeout_ms > 0 else None
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self._bytes += len(message.data())

    def is_complete(self, now_s: float) -> bool:
        policy = self._policy
        return (
            0 < policy.max_num_message <= len(self.messages)
            or 0 < policy.max_num_bytes <= self._bytes
            or (self.deadline_s is not None and now_s >= self.deadline_s)
        )
