"""The methods of producers, consumers, readers and table views that do not wait, for both APIs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ledgerfold.broker.client.core.client_core import (
    AnyConsumer,
    AnyReader,
    Forget,
    Opened,
)
from ledgerfold.broker.client.core.partitioned_producer import AnyProducer
from ledgerfold.broker.client.core.table import Listener
from ledgerfold.broker.client.core.table_view_core import TableViewCore
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.new_message import checked_message
from ledgerfold.broker.client.messages.policies import ConsumerBatchReceivePolicy
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.storage.text import counted


class BaseProducer(Opened[AnyProducer]):
    """The methods of both APIs' producers that do not wait."""

    def __init__(self, core: AnyProducer, forget: Forget) -> None:
        super().__init__(core, forget)
        self._schema = core.config.schema
        self._checked = partial(checked_message, clock_ms=core.queue.clock_ms)

    def _encoded(self, content: Any) -> bytes | None:
        """Returns the content in bytes. Raises InvalidRequest."""
        schema = self._schema
        if schema is None or content is None:
            return content  # type: ignore[no-any-return]  # it is checked with the message
        try:
            return schema.encode(content)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"The content does not fit the schema: {error}") from error

    def producer_name(self) -> str:
        """The given name, or the one that the broker chose."""
        return self._core.producer_name

    def last_sequence_id(self) -> int:
        """The sequence id of the last stored message; -1 without one.

        A producer that is reopened under its name continues after it.
        """
        return self._core.queue.last_sequence_id_stored

    def is_connected(self) -> bool:
        return self._core.is_connected

    def is_kafka_topic(self) -> bool:
        """Returns whether messages become records of a Kafka topic, where only a null value is a
        tombstone, not an empty one.
        """
        return self._core.is_kafka_topic


class BaseConsumer(Opened[AnyConsumer]):
    """The methods of both APIs' consumers that do not wait."""

    def subscription_name(self) -> str:
        return self._core.config.subscription_name

    def consumer_name(self) -> str:
        """The given name, or the one that the broker chose."""
        return self._core.consumer_name

    def is_connected(self) -> bool:
        return self._core.is_connected

    def _new_batch(self, now_s: float, messages: Iterable[Message] = ()) -> ReceivedBatch:
        """Returns an empty batch, or one that begins with `messages`. Raises NotAllowed."""
        config = self._core.config
        if not config.receiver_queue_size:
            raise NotAllowed(
                "A receiver_queue_size of 0 does not allow batch_receive: nothing is fetched ahead."
            )
        policy = config.batch_receive_policy or ConsumerBatchReceivePolicy()
        return ReceivedBatch(policy, now_s, messages)


class BaseReader(Opened[AnyReader]):
    """The methods of both APIs' readers that do not wait."""

    def is_connected(self) -> bool:
        return self._core.is_connected

    def has_reached_end_of_topic(self) -> bool:
        """Returns whether the topic was terminated and everything in it was read.

        Named as in Pulsar's Java client. `read_next` would then wait without end.
        """
        return self._core.has_reached_end()


class BaseTableView(Opened[TableViewCore]):
    """The methods of both APIs' views that do not wait."""

    def __init__(self, core: TableViewCore, forget: Forget) -> None:
        super().__init__(core, forget)
        self._table = core.table

    def get(self, key: str) -> Any:
        """Returns the key's value; None without one."""
        return self._table.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __len__(self) -> int:
        return len(self._table)

    def keys(self) -> list[str]:
        """Returns a copy of the keys."""
        return list(self._table.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """Returns a copy of keys and values."""
        return self._table.snapshot()

    def for_each(self, callback: Listener) -> None:
        """Calls `callback` with each key and value, in the caller's thread."""
        self._table.for_each(callback)

    def listen(self, callback: Listener) -> None:
        """Calls `callback` for every later update. Its errors are logged."""
        self._table.listen(callback)

    def for_each_and_listen(self, callback: Listener) -> None:
        """Calls `callback` for every key, then for every update: none is missed or repeated.

        The calls for existing keys run in the caller's thread, while updates wait; their errors are
        raised.
        """
        self._table.for_each_and_listen(callback)

    def __repr__(self) -> str:
        return f"TableView({self.topic()}, {counted(len(self), 'key')})"


class ReceivedBatch:
    """The messages that one `batch_receive` collects, until its policy is met. No waiting. Times in
    seconds, on any one clock.

    >>> batch = ReceivedBatch(ConsumerBatchReceivePolicy(2, -1, 100), now_s=7.0)
    >>> batch.deadline_s, batch.is_complete(now_s=7.05), batch.is_complete(now_s=7.1)
    (7.1, False, True)
    """

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
