"""Start positions of Pulsar's clients: of a new subscription, of a seek.

Clients name the entry at which they start, and skip messages that they do not want. So the broker
starts at that entry, whether or not the client wants the message itself.
"""

from __future__ import annotations

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.pulsar_pb2 import CommandSeek, CommandSubscribe, MessageIdData
from ledgerfold.v1.records_pb2 import MessageId

_LATEST = 2**63 - 1
_EARLIEST_POSITION = 1


def start_of(opening: CommandSubscribe, now_ms: int) -> StartPosition:
    """Returns the start of a subscription if it is new."""
    if opening.start_message_rollback_duration_sec:
        back_ms = opening.start_message_rollback_duration_sec * 1000
        return StartPosition(publish_time_ms=max(0, now_ms - back_ms))
    if not opening.durable and opening.HasField("start_message_id"):
        return _start(opening.start_message_id)
    if opening.initial_position == _EARLIEST_POSITION:
        return StartPosition(earliest=True)
    return StartPosition(latest=True)


def start_at(seek: CommandSeek) -> StartPosition:
    """Returns the target of a seek. Raises InvalidRequest."""
    if seek.HasField("message_publish_time"):
        if seek.message_publish_time < 0:
            raise InvalidRequest("A seek to a time above 2^63.")
        return StartPosition(publish_time_ms=seek.message_publish_time)
    if seek.HasField("message_id"):
        return _start(seek.message_id)
    raise InvalidRequest("A seek has a message id or a time.")


def _start(at: MessageIdData) -> StartPosition:
    if at.ledger_id < 0:
        return StartPosition(earliest=True)
    if at.ledger_id == _LATEST:
        return StartPosition(latest=True)
    entry = MessageId(
        ledger_id=at.ledger_id, entry_id=max(0, at.entry_id), batch_index=-1, partition=-1
    )
    return StartPosition(message_id=entry, inclusive=True)
