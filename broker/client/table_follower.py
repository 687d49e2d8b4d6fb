"""One reader of a table view: it applies what comes, and knows when it has caught up.

* It reads the compacted view from earliest on, entry by entry, in one task; of a Kafka topic, whose
  log itself is cleaned, the log.
* Caught up means: everything that was there when one asked is applied. That is so when the last
  message of then has come; and when the broker says that there is no more, for a compaction may
  take that message away before it is read.
* An error that ends its reader is logged, told to those who wait, and followed by a new reader
  behind the last entry that was applied. (A lost connection the reader mends by itself.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ledgerfold.broker.client.connection import Connection
from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.broker.client.reader_core import ReaderConfig, ReaderCore
from ledgerfold.broker.client.start import is_kafka_topic, last_message_id
from ledgerfold.broker.client.table import Table
from ledgerfold.broker.ground.uncancelled import runs_to_its_end
from ledgerfold.storage.entry import EARLIEST

_log = logging.getLogger(__name__)
# So many, and the rest of their entry, are applied before others get a turn.
_MESSAGES_AT_ONCE = 1000
# Runs a call, on the event loop or in a thread, and returns when it is done.
Run = Callable[[Callable[[], None]], Awaitable[None]]


class TableFollower:
    """Follows one topic. Made on the event loop; `run` says where the table is written."""

    def __init__(
        self, connection: Connection, topic: str, subscription: str, table: Table, run: Run
    ) -> None:
        self.topic = topic
        self._connection = connection
        self._subscription = subscription
        self._table = table
        self._run = run
        self.applied = EARLIEST
        # Held while entries are taken; notified when some were applied, and of an error.
        self._changed = asyncio.Condition()
        self._error: Exception | None = None
        self._reader: ReaderCore
        self._task: asyncio.Task[None]

    @classmethod
    async def open(
        cls, connection: Connection, topic: str, subscription: str, table: Table, run: Run
    ) -> TableFollower:
        """Connects and begins. Raises what the broker answers."""
        follower = cls(connection, topic, subscription, table, run)
        follower._reader = await follower._open_reader()
        follower._task = asyncio.create_task(follower._follow())
        return follower

    async def catch_up(self) -> None:
        """Returns when all that is there now is applied. Raises what keeps it from being read."""
        last = await last_message_id(self._connection, self.topic, True)
        async with self._changed:
            while self.applied < last.position:
                if self._error is not None:
                    raise self._error
                if not await self._reader.check():
                    return
                await self._changed.wait()

    @runs_to_its_end
    async def close(self) -> None:
        """Also where the caller does not wait for it."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._reader.close()

    # Inside

    async def _open_reader(self) -> ReaderCore:
        behind = MessageId(-1, *self.applied)
        is_kafka = await is_kafka_topic(self._connection, self.topic)
        config = ReaderConfig(
            self.topic,
            behind,
            is_read_compacted=not is_kafka,
            reader_name=self._subscription,
            subscription=self._subscription,
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
            except Exception as error:  # whatever it was: those who wait must hear of it
                _log.warning("The table view of %s stands still: %s", self.topic, error)
                async with self._changed:
                    self._error = error
                    self._changed.notify_all()

    def _take(self) -> None:
        """Applies what has come. Raises Corruption, and what ended the reader."""
        receiver, taken = self._reader.receiver, 0
        while taken < _MESSAGES_AT_ONCE and receiver.has_row():
            messages = list(receiver.entry_messages())
            self._table.apply(messages)
            self.applied = messages[-1].message_id().position
            taken += len(messages)

    async def _reopen(self) -> None:
        """A new reader behind what was applied."""
        await self._reader.close()
        self._reader = await self._open_reader()
        self._error = None
