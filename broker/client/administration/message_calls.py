"""The calls of Admin about single messages (broker/client/administration/admin.py).

>>> from ledgerfold.broker.client import Client, MessageId
>>> from ledgerfold.broker.client.administration.admin import Admin
>>> with Client("127.0.0.1:7650") as client, Admin("127.0.0.1:7650") as admin:
...     admin.create_topic("peeked")
...     admin.create_subscription("peeked", "s", MessageId.earliest)
...     with client.create_producer("peeked") as producer:
...         sent = producer.send(b"v1", partition_key="k")
...     for message in admin.peek_messages("peeked", "s"):
...         print(message.message_id() == sent, message.partition_key(), message.data())
True k b'v1'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.broker.common.names import full_topic
from ledgerfold.storage.entry import read_header
from ledgerfold.v1 import admin_pb2

if TYPE_CHECKING:
    from ledgerfold.broker.client.messages.message import Message


class MessageCalls(Calls):
    """The calls about single messages. They have no effect on subscriptions.

    The topic is one partition, or not partitioned. A batch is one entry; the messages of an entry
    are returned together. Each call raises TopicNotFound, NotAllowed (by the kind of the topic),
    Corruption.
    """

    def peek_messages(self, topic: str, subscription: str, count: int = 1) -> list[Message]:
        """Returns up to `count` messages of a subscription's backlog, the oldest first.

        Messages that were delivered and are not acknowledged are in the backlog. Raises
        InvalidRequest, SubscriptionNotFound.
        """
        messages: list[Message] = []
        entries = 0
        while True:
            request = admin_pb2.PeekMessagesRequest(
                topic=topic,
                subscription=subscription,
                position=entries + 1,
                messages=count - len(messages),
            )
            next_ = self._call(request).entries
            entries += len(next_)
            for each in next_:
                messages += _messages(topic, each)
            if not next_ or len(messages) >= count:
                return messages[:count]

    def examine_messages(
        self, topic: str, position: int = 1, *, from_earliest: bool = False
    ) -> list[Message]:
        """Returns the messages of one entry, the `position`th from the end of the topic.

        `from_earliest`: the `position`th from its beginning. Positions count from 1. Raises
        InvalidRequest if the topic has fewer entries, MessageNotFound if it has none.
        """
        request = admin_pb2.ExamineMessagesRequest(
            topic=topic, position=position, from_earliest=from_earliest
        )
        return _messages(topic, self._call(request).entry)

    def messages_by_id(self, topic: str, ledger_id: int, entry_id: int) -> list[Message]:
        """Returns the messages of an entry. Raises MessageNotFound, also if it was trimmed."""
        request = admin_pb2.GetMessageByIdRequest(
            topic=topic, ledger_id=ledger_id, entry_id=entry_id
        )
        return _messages(topic, self._call(request).entry)


def _messages(topic: str, data: bytes) -> list[Message]:
    # Codecs, which other calls do not need.
    from ledgerfold.broker.client.messages.message import Message
    from ledgerfold.broker.client.streams.inbox import Delivery
    from ledgerfold.broker.client.streams.receiver import opened_entry

    entry = opened_entry(Delivery(read_header(data), memoryview(data)), full_topic(topic))
    return [Message((entry, row)) for row in range(entry.batch.rows)]
