"""The reader of a table view: applies messages to the table and reports when it has caught up.

* It reads the compacted view from earliest on, entry by entry, in one task. On a Kafka topic, which
  the cleaner rewrites, it reads the log.
* `catch_up` returns when everything that was in the topic at the call is applied: when the last
  message of that time has been applied, or when the broker reports that there are no more. (A
  compaction may remove that message before it is read.)
* An error that ends the reader is logged and raised by pending `catch_up` calls; a new reader
  starts after the last applied entry. (The reader itself reconnects after a lost connection.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ledgerfold.broker.client.core.partition_set import Core
from ledgerfold.broker.client.core.reader_core import ReaderCore
from ledgerfold.broker.client.core.table import Table
from ledgerfold.broker.client.messages.configs import ReaderConfig
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.storage.entry import EARLIEST

_log = logging.getLogger(__name__)
# Messages applied (with the rest of their entry) before other tasks may run.
_MESSAGES_AT_ONCE = 1000
# Runs a call, on the event loop or in a thread, and returns when it is done.
Run = Callable[[Callable[[], None]], Awaitable[None]]


class TableFollower(Core):
    """A reader of one topic. Create it on the event loop. `run` runs the calls that write the
    table.
    """

    def __init__(
        self, connection: Connection, topic: str, subscription: str, table: Table, run: Run
    ) -> None:
        self.topic = topic
        self._connection = connection
        self._subscription = subscription
        self._table = table
        self._run = run
        self.applied = EARLIEST
        # Held while entries are applied; notified after that, and of an error.
        self._changed = asyncio.Condition()
        self._error: Exception | None = None
        self._reader: ReaderCore
        self._task: asyncio.Task[None]

    @classmethod
    async def open(
        cls, connection: Connection, topic: str, subscription: str, table: Table, run: Run
    ) -> TableFollower:
        """Connects and starts reading. Raises the broker's errors."""
        follower = cls(connection, topic, subscription, table, run)
        follower._reader = await follower._open_reader()
        follower._task = asyncio.create_task(follower._follow())
        return follower

    async def catch_up(self) -> None:
        """Returns when everything in the topic at the call is applied. Raises errors of reading."""
        last = await self._connection.last_message_id(self.topic, True)
        async with self._changed:
            while self.applied < last.position:
                if self._error is not None:
                    raise self._error
                if not await self._reader.check():
                    return
                await self._changed.wait()

    @runs_to_completion
    async def close(self) -> None:
        """Closes the reader, also if the caller is cancelled."""
        await self._stop()
        await self._reader.close()

    @runs_to_completion
    async def shut_down(self) -> None:
        await self._stop()
        await self._reader.shut_down()

    async def _stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    # Inside

    async def _open_reader(self) -> ReaderCore:
        last_applied = MessageId(-1, *self.applied)
        is_kafka = await self._connection.is_kafka_topic(self.topic)
        config = ReaderConfig(
            self.topic,
            last_applied,
            is_read_compacted=not is_kafka,
            reader_name=self._subscription,
            subscription_name=self._subscription,
        )
        return await ReaderCore.open(self._connection, config)

    async def _follow(self) -> None:
        backoff = self._connection.backoff()
        while True:
            try:
                if self._error is not None:
                    await asyncio.sleep(backoff.next_s())
                    await self._reopen()
                await self._reader.inbox.wait_async()
                async with self._changed:
                    await self._run(self._take)
                    self._changed.notify_all()
                backoff.reset()
            except Exception as error:  # any error: waiting callers must be notified
                _log.warning(
                    "The table view of %s has stopped reading and will retry: %s", self.topic, error
                )
                async with self._changed:
                    self._error = error
                    self._changed.notify_all()

    def _take(self) -> None:
        """Applies the received messages. Raises Corruption, and the error that ended the reader."""
        receiver, taken = self._reader.receiver, 0
        while taken < _MESSAGES_AT_ONCE and receiver.has_row():
            messages = list(receiver.entry_messages())
            self._table.apply(messages)
            self.applied = messages[-1].message_id().position
            taken += len(messages)

    async def _reopen(self) -> None:
        """Opens a new reader after the last applied entry."""
        await self._reader.close()
        self._reader = await self._open_reader()
        self._error = None
