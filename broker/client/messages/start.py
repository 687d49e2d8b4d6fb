"""Start positions of reads, in wire format: a message id, an offset, or a publish time."""

from __future__ import annotations

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2, records_pb2

# The value for a topic without stored messages, which has no start.
SOUGHT = "sought"


def start_at(message_id: MessageId, *, inclusive: bool) -> data_pb2.StartPosition:
    if message_id.ledger_id() < 0:
        return data_pb2.StartPosition(earliest=True)
    if message_id == MessageId.latest:
        return data_pb2.StartPosition(latest=True, inclusive=inclusive)
    return data_pb2.StartPosition(message_id=message_id.to_record(), inclusive=inclusive)


def start_of(place: MessageId | int, *, inclusive: bool) -> data_pb2.StartPosition:
    """Returns the start at `place`: a message id, or ms since the epoch. Raises InvalidRequest."""
    if isinstance(place, MessageId):
        return start_at(place, inclusive=inclusive)
    if isinstance(place, int) and not isinstance(place, bool) and 0 <= place < 2**63:
        return data_pb2.StartPosition(publish_time_ms=place)
    raise InvalidRequest(f"Seek takes a message id or a publish time in ms, not {place!r}.")


def start_at_offset(offset: int) -> data_pb2.StartPosition:
    """Returns the start at that record of a Kafka topic, or at the next one that exists."""
    return start_at(id_of_offset(offset), inclusive=True)


def id_of_offset(offset: int, partition: int = -1) -> MessageId:
    """Returns the id of the message at that offset of a Kafka topic. Raises InvalidRequest."""
    if isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 2**63:
        return MessageId(partition, 0, offset)
    raise InvalidRequest(f"An offset is an integer, 0 or more, not {offset!r}.")


def start_after(position: Position) -> data_pb2.StartPosition:
    """Returns the start at the entry after `position`."""
    ledger_id, entry_id = position.next
    message_id = records_pb2.MessageId(
        ledger_id=ledger_id, entry_id=entry_id, batch_index=-1, partition=-1
    )
    return data_pb2.StartPosition(message_id=message_id, inclusive=True)
