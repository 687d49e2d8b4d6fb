"""The policies of a consumer, with the names of Pulsar's Python client.

>>> ConsumerBatchReceivePolicy(10, -1, 500).max_num_message
10
>>> ConsumerDeadLetterPolicy(3).topic_for("persistent://public/default/orders", "billing")
'persistent://public/default/orders-billing-DLQ'
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.broker.client.messages.argument_types import check_fields
from ledgerfold.storage.errors import InvalidRequest

# What a batch holds if the policy limits neither messages nor bytes (Pulsar's default).
BATCH_BYTES_MAX = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConsumerBatchReceivePolicy:
    """The limits of `batch_receive`, which returns at the first one. 0 or less: no limit.

    Without a limit of messages and of bytes, a batch has at most 10 MiB. The batch may exceed its
    bytes by the last message.
    """

    max_num_message: int = -1
    max_num_bytes: int = BATCH_BYTES_MAX
    timeout_ms: int = 100

    def __post_init__(self) -> None:
        check_fields(self)
        if max(self.max_num_message, self.max_num_bytes, self.timeout_ms) <= 0:
            raise InvalidRequest(
                "A batch needs a limit: max_num_message, max_num_bytes or timeout_ms above 0."
            )
        if self.max_num_message <= 0 and self.max_num_bytes <= 0:
            object.__setattr__(self, "max_num_bytes", BATCH_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class ConsumerDeadLetterPolicy:
    """The topic of messages that were redelivered too often.

    A message is delivered once and then redelivered `max_redeliver_count` times; instead of once
    more, it is published to `dead_letter_topic` and acknowledged. None: TOPIC-SUBSCRIPTION-DLQ; on
    a partitioned topic each partition has its own. `initial_subscription_name`: a subscription that
    is created on that topic, so that its messages are retained.
    """

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    initial_subscription_name: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_redeliver_count < 1:
            raise InvalidRequest("max_redeliver_count must be 1 or more.")

    def topic_for(self, topic: str, subscription: str) -> str:
        """Returns the dead letter topic of a (full) topic name."""
        return self.dead_letter_topic or f"{topic}-{subscription}-DLQ"
