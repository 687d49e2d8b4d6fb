"""Start positions of reads and subscriptions, as users write them.

    >>> str(parse_start("12:3:-1:0")), parse_start("1704067200000")
    ('12:3:-1:0', 1704067200000)

* `earliest`, `latest`;
* a message id, as printed (storage/message_ids.py); in a partition it includes the partition;
* a publish time: ms since the epoch, or ISO 8601 (local time without a zone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerfold.broker.cli.units import INT64_MAX, moment_ms
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import FORM, parsed_id
from ledgerfold.storage.partition_names import parse_partition, partition_name

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId

# The notation in help texts.
ID = "L:E[:P[:I]]"


def parse_start(text: str) -> MessageId | int:
    """Parses an id, or a time into ms since the epoch. Raises InvalidRequest."""
    message_id = parse_message_id(text)
    if message_id is not None:
        return message_id
    time_ms = moment_ms(text)
    if time_ms is None or time_ms > INT64_MAX:
        raise InvalidRequest(
            f"{text!r} is not a start position: expected earliest, latest, {FORM}, "
            "ms since the epoch, or a time like 2024-01-31T12:00:00Z."
        )
    return time_ms


def parse_message_id(text: str) -> MessageId | None:
    """Parses a message id; None if `text` is not one."""
    from ledgerfold.broker.client import MessageId

    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    message_id = parsed_id(text)
    if message_id is None:
        return None
    ledger_id, entry_id, partition, index = message_id
    return MessageId(partition, ledger_id, entry_id, index)


def topic_of(topic: str, message_id: MessageId) -> str:
    """Returns the topic or partition that holds the message. Raises InvalidRequest.

    >>> from ledgerfold.broker.client import MessageId
    >>> topic_of("orders", MessageId(2, 12, 3)), topic_of("orders", MessageId(-1, 12, 3))
    ('orders-partition-2', 'orders')
    """
    index, partition = message_id.partition(), parse_partition(topic)
    if index < 0:
        return topic
    if partition is None:
        return partition_name(topic, index)
    if partition.index != index:
        raise InvalidRequest(f"The message id names partition {index}, which is not {topic}.")
    return topic
