"""Message ids.

    >>> first = MessageId(-1, 12, 3, 0)
    >>> str(first), first < MessageId(-1, 12, 4), MessageId.deserialize(first.serialize()) == first
    ('12:3:-1:0', True, True)

The text form is the one of storage/message_ids.py. Ids are ordered as published: by ledger, entry,
batch index, partition, as in Pulsar.
"""

from __future__ import annotations

from functools import total_ordering
from typing import ClassVar

from google.protobuf.message import DecodeError

from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import id_text
from ledgerfold.v1 import records_pb2

_MAX = 2**63 - 1


@total_ordering
class MessageId:
    """The identity of a message (`pulsar.MessageId`). Compaction never changes it.

    A producer gets (-1, -1, -1, -1) for a resent message that the broker had stored already: the
    broker does not report its position again.
    """

    __slots__ = ("_batch_index", "_entry_id", "_ledger_id", "_partition", "topic")

    # The beginning and the end of any topic; set after the class.
    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __init__(
        self,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        topic: str | None = None,
    ) -> None:
        self._partition = partition
        self._ledger_id = ledger_id
        self._entry_id = entry_id
        self._batch_index = batch_index
        # The topic of the message, as `Message.topic_name`; None if the id came from elsewhere. As
        # in Pulsar, neither serialized nor compared.
        self.topic = topic

    def partition(self) -> int:
        """The index of the partition that holds the message; -1 on a topic that is not a
        partition.
        """
        return self._partition

    def ledger_id(self) -> int:
        return self._ledger_id

    def entry_id(self) -> int:
        return self._entry_id

    def batch_index(self) -> int:
        """The index in the published batch; -1 for a message sent without batching."""
        return self._batch_index

    @property
    def is_boundary(self) -> bool:
        """True for `earliest` and `latest`, which identify no message and apply to every
        partition.
        """
        return self in (MessageId.earliest, MessageId.latest)

    @property
    def position(self) -> Position:
        """The position of the entry that holds the message."""
        return Position(self._ledger_id, self._entry_id)

    def serialize(self) -> bytes:
        """Returns the id as bytes, for storage (ledgerfold.v1.MessageId; not Pulsar's format)."""
        return bytes(self.to_record().SerializeToString())

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """Parses the result of `serialize`. Raises InvalidRequest.

        `topic`: the message's, for a consumer of several topics.
        """
        try:
            parsed = MessageId.of_record(records_pb2.MessageId.FromString(message_id_bytes))
            parsed.topic = topic
            return parsed
        except (DecodeError, TypeError) as error:
            raise InvalidRequest(f"Not a serialized message id: {error}") from error

    def to_record(self) -> records_pb2.MessageId:
        """Converts the id to its wire format. Raises InvalidRequest if a part is not an integer in
        its range.
        """
        try:
            return records_pb2.MessageId(
                ledger_id=self._ledger_id,
                entry_id=self._entry_id,
                batch_index=self._batch_index,
                partition=self._partition,
            )
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"{self!r} is not a valid message id: {error}") from error

    @staticmethod
    def of_record(record: records_pb2.MessageId) -> MessageId:
        return MessageId(record.partition, record.ledger_id, record.entry_id, record.batch_index)

    def _order(self) -> tuple[int, int, int, int]:
        return self._ledger_id, self._entry_id, self._batch_index, self._partition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageId) and self._order() == other._order()

    def __lt__(self, other: MessageId) -> bool:
        return self._order() < other._order()

    def __hash__(self) -> int:
        return hash(self._order())

    def __str__(self) -> str:
        return id_text(self._ledger_id, self._entry_id, self._partition, self._batch_index)

    def __repr__(self) -> str:
        return f"MessageId({self})"


MessageId.earliest = MessageId()
MessageId.latest = MessageId(-1, _MAX, _MAX)
