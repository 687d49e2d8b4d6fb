"""The policies of a consumer, with the names of Pulsar's Python client.

>>> ConsumerBatchReceivePolicy(10, -1, 500).max_num_message
10
>>> ConsumerDeadLetterPolicy(3).topic_for("persistent://public/default/orders", "billing")
'persistent://public/default/orders-billing-DLQ'
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.broker.client.messages.argument_types import check_fields
from ledgerfold.broker.client.messages.options import KeySharedMode
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2

# The hashes of keys.
_HASHES = 65_536
# The size of a batch if the policy limits neither messages nor bytes (Pulsar's default).
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

    A message is delivered once, and then redelivered `max_redeliver_count` times. Instead of
    another redelivery, it is published to `dead_letter_topic` and acknowledged. None:
    TOPIC-SUBSCRIPTION-DLQ; on a partitioned topic each partition has its own.
    `initial_subscription_name`: a subscription that is created on that topic, so that its messages
    are retained.
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


@dataclass(frozen=True, slots=True)
class ConsumerKeySharedPolicy:
    """The way in which the consumers of a KeyShared subscription share its keys.

    AutoSplit: the broker gives each consumer a share of the hashes. With Sticky, the consumer gets
    exactly its ranges, pairs of first and last hash from 0 to 65535; the broker refuses ranges that
    another consumer has.
    """

    key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit
    # A consumer may get messages of a key while another one has earlier messages of it.
    allow_out_of_order_delivery: bool = False
    sticky_ranges: list[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.key_shared_mode != KeySharedMode.Sticky:
            return
        if not self.sticky_ranges:
            raise InvalidRequest("KeySharedMode.Sticky needs sticky_ranges.")
        end = -1
        for first, last in sorted(self.sticky_ranges):
            if not end < first <= last < _HASHES:
                raise InvalidRequest(
                    f"sticky_ranges must be pairs (first, last) from 0 to {_HASHES - 1} that do "
                    f"not overlap, not {self.sticky_ranges!r:.100}."
                )
            end = last

    @property
    def on_wire(self) -> data_pb2.KeyShared:
        is_sticky = self.key_shared_mode == KeySharedMode.Sticky
        ranges = (self.sticky_ranges or ()) if is_sticky else ()
        return data_pb2.KeyShared(
            sticky=is_sticky,
            hash_ranges=[data_pb2.HashRange(first=first, last=last) for first, last in ranges],
            allow_out_of_order=self.allow_out_of_order_delivery,
        )
