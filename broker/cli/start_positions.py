"""Where a read or a subscription begins, as people write it.

    >>> str(parse_start("12:3:0")), parse_start("1704067200000")
    ('12:3:-1:0', 1704067200000)

* `earliest`, `latest`;
* a message id: LEDGER:ENTRY, LEDGER:ENTRY:INDEX as the command line prints it, or
  LEDGER:ENTRY:PARTITION:INDEX as Python does, and the command line for one of a partition, which
  it names then;
* a publish time: ms since the epoch, or ISO 8601 (local time when it names no zone).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.partition_names import parse_partition, partition_name

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_MESSAGE_ID = re.compile(r"([0-9]+):([0-9]+)(?::(?:(-1|[0-9]+):)?(-1|[0-9]+))?")


def parse_start(text: str) -> MessageId | int:
    """An id, or ms since the epoch. Raises InvalidRequest."""
    message_id = parse_message_id(text)
    if message_id is not None:
        return message_id
    time_ms = int(text) if re.fullmatch(r"[0-9]+", text) else _iso_ms(text)
    if time_ms is None or not 0 <= time_ms <= _INT64_MAX:
        raise InvalidRequest(
            f"{text!r} is no start: write earliest, latest, LEDGER:ENTRY[[:PARTITION]:INDEX], "
            "ms since the epoch, or a time like 2024-01-31T12:00:00Z."
        )
    return time_ms


def parse_message_id(text: str) -> MessageId | None:
    """None when it is none."""
    from ledgerfold.broker.client import MessageId

    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    match = _MESSAGE_ID.fullmatch(text)
    if match is None:
        return None
    ledger_id, entry_id = int(match[1]), int(match[2])
    partition, index = int(match[3] or -1), int(match[4] or -1)
    if max(ledger_id, entry_id) > _INT64_MAX or max(partition, index) > _INT32_MAX:
        return None
    return MessageId(partition, ledger_id, entry_id, index)


def topic_of(topic: str, message_id: MessageId) -> str:
    """The topic that holds the message: an id of a partition names it. Raises InvalidRequest.

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
        raise InvalidRequest(f"A message of partition {index} is not in {topic}.")
    return topic


def _iso_ms(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
