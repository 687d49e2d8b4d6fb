"""The send queue of a producer: batching, limits, and notification of results.

Sending threads add messages; the event loop sends the entries. One lock guards the queue; a message
takes it once, briefly. The rules:

* A batch is sealed when it holds `batching_max_messages` or `batching_max_allowed_size_in_bytes`,
  when its first message has waited for the publish delay, or on `seal` (flush, blocking send).
* Without batching, each message is sealed as an entry as soon as the event loop runs; messages that
  arrived meanwhile are built and sent together (PendingRun).
* At most `max_pending_messages` and BYTES_PENDING_MAX wait for receipts; beyond that the caller
  waits or gets Overloaded.
* A batch above the broker's limit is split in halves until each part fits; a single message that is
  too large fails with MessageTooLarge.
* A delayed message is a separate entry, without a batch, as in Pulsar's clients.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.new_message import INT64_MAX, NewMessage
from ledgerfold.broker.client.streams.batching import (
    Batch,
    Container,
    DefaultContainer,
    Listener,
    PlainContainer,
    QuickRows,
)
from ledgerfold.broker.client.streams.pending import (
    NOWHERE,
    EntryMaker,
    NativeEntries,
    Outcome,
    PendingEntry,
)
from ledgerfold.broker.client.streams.publish_stream import PublishStream
from ledgerfold.storage.entry import entry_bytes_after_rebuild_max
from ledgerfold.storage.errors import (
    AlreadyClosed,
    InvalidRequest,
    LedgerfoldError,
    MessageTooLarge,
    NotAllowed,
    Overloaded,
)
from ledgerfold.storage.text import counted

_log = logging.getLogger(__name__)
# Limit on the total size of entries that wait for receipts. A single larger entry is allowed.
BYTES_PENDING_MAX = 64 * 1024 * 1024
# Close to the highest sequence id, each id is checked: the fast path does not count them.
_QUICK_SEQUENCE_ID_MAX = INT64_MAX - 2**32
# The maximum number of entries that are built together.
RUN_ENTRIES_MAX = 1000


class SendQueue:
    """A producer's messages until their receipts. Thread-safe."""

    def __init__(
        self,
        stream: PublishStream,
        container: Container,
        config: ProducerConfig,
        *,
        entries: EntryMaker,
        clock_ms: Callable[[], int],
        is_io_thread: Callable[[], bool],
    ) -> None:
        self._stream = stream
        self._container = container
        self._config = config
        self._batch_bytes = config.batching_max_allowed_size_in_bytes
        self._batch_delay_s = config.batching_max_publish_delay_ms / 1000
        self._maker = entries
        self.clock_ms = clock_ms
        self._is_io_thread = is_io_thread
        self._loop = stream.loop
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._threads_waiting = 0
        # The tasks that wait for space, in order of arrival.
        self._tasks_waiting: dict[asyncio.Future[None], None] = {}
        self._error: LedgerfoldError | None = None
        self._unreported: LedgerfoldError | None = None
        self._last_seal_s = 0.0
        # Counts of entries passed to the stream, and of those answered. Messages and bytes count as
        # answered before the callbacks run, entries after.
        self._entries_in = self._entries_out = 0
        self._messages_in = self._messages_out = 0
        self._bytes_in = self._bytes_out = 0
        self.last_sequence_id_stored = container.last_sequence_id
        # Maximum number of messages in the open batch: below the limit when the queue fills up.
        self._rows_max = 0
        self.quick = QuickRows(self.watch)
        self.quick.size_max = self._batch_bytes
        self._refresh()

    # Adding.

    def add(self, message: NewMessage, listener: Listener, *, wait: bool) -> None:
        """Adds one message. `wait`: waits for space instead of raising Overloaded.

        `Producer.send_async` has a fast path with the same effect.
        """
        self._maker.check(message)
        with self.lock:
            self._sync()
            try:
                self._add(message, listener, wait)
            finally:
                self._refresh()

    def watch(self) -> None:
        """Starts the timer for messages added on the fast path."""
        with self.lock:
            if self._error is not None:
                self._fail_quick(self._error)
                raise self._error
            self._set_timer()

    def _sync(self) -> None:
        """Moves messages of the fast path into the batch."""
        items = self.quick.take()
        if items and isinstance(self._container, PlainContainer):
            self._submit_run(items, self._container)
        elif items and isinstance(self._container, DefaultContainer):
            if self._container.names_sequence_ids:
                self._submit(self._container.take())
            self._container.extend(items, self.quick.size_bytes)

    def _submit_run(self, items: list[Any], container: PlainContainer) -> None:
        """Passes an entry for each message to the stream."""
        first_id = container.last_sequence_id + 1
        maker = self._maker
        assert isinstance(maker, NativeEntries)
        run = maker.run(items, first_id, self.clock_ms(), container.producer_name)
        if max(map(len, run.parts)) <= self._stream.entry_bytes_max:
            container.skip(run.entries)
            self._pass_on(run)
            return
        # One by one: those that are too large fail.
        for start in range(0, len(items), 3):
            container.extend(items[start : start + 3], 0)
            self._submit(container.take())

    def _fail_quick(self, error: LedgerfoldError) -> None:
        """Fails messages of the fast path after the end. Called with the lock held."""
        self._fail(PendingEntry(b"", -1, self.quick.take()[2::3], False), error)

    def _fail(self, entry: PendingEntry, error: LedgerfoldError) -> None:
        """Fails an entry that was not sent. Deferred: the lock is held, and a callback may send."""
        if None in entry.listeners:
            self._record_unreported(error)
        failed = Outcome(entry, NOWHERE, error)
        self._loop.call_soon_threadsafe(failed.notify, self._stream.partition)

    def _add(self, message: NewMessage, listener: Listener, wait: bool) -> None:
        container, size_max = self._container, self._batch_bytes
        size = message.size_bytes
        while True:
            if self._error is not None:
                raise self._error
            is_full = container.size_bytes + size > size_max
            if container.rows and (is_full or message.deliver_at_ms):
                self._seal()
            self._refresh()
            if container.rows < self._rows_max:
                break
            self._seal()
            self._refresh()
            if not self._rows_max:
                self._wait_for_room(wait)
        last = container.last_sequence_id
        if 0 <= message.sequence_id <= last:
            raise InvalidRequest(
                f"Sequence id {message.sequence_id} is not above the last one, {last}."
            )
        if last >= INT64_MAX:
            raise InvalidRequest(
                f"Sequence ids are exhausted: the last one is {last}. Use a producer with another "
                "name."
            )
        container.add(message, listener)
        is_full = container.rows >= self._rows_max or container.size_bytes >= size_max
        if is_full or message.deliver_at_ms:
            self._seal()
        else:
            self._set_timer()

    def _wait_for_room(self, wait: bool) -> None:
        if not wait:
            raise Overloaded(
                f"The {self._stream.description} is at its limit of messages that wait for "
                f"receipts: {counted(self._config.max_pending_messages, 'message')}, or "
                f"{BYTES_PENDING_MAX} bytes. Wait for some, or use block_if_queue_full=True, or a "
                "higher max_pending_messages."
            )
        if self._is_io_thread():
            raise Overloaded("The queue is full, and a callback must not wait for space in it.")
        # NOTE: on_done updates the counts without the lock and then checks for waiters; so a waiter
        # registers first and reads the counts afterwards. Here and in flush.
        self._threads_waiting += 1
        try:
            self._refresh()
            if not self._rows_max and self._error is None:
                self._changed.wait()
        finally:
            self._threads_waiting -= 1

    def _refresh(self) -> None:
        """Recomputes how far the open batch may grow and whether the fast path is open."""
        config, container = self._config, self._container
        rows_max = RUN_ENTRIES_MAX if container.is_plain else config.batching_max_messages
        if config.max_pending_messages:
            pending = self._messages_in - self._messages_out
            rows_max = min(rows_max, config.max_pending_messages - pending)
        if self._bytes_in - self._bytes_out >= BYTES_PENDING_MAX:
            rows_max = 0
        quick_rows = max(rows_max, 0)
        self._rows_max = min(quick_rows, 1) if container.is_plain else quick_rows
        quick = self.quick
        quick.items_max = 0
        is_quick = type(container) is DefaultContainer or self._maker.makes_runs
        if self._error is None and is_quick and isinstance(container, DefaultContainer):
            quick.size_bytes = container.size_bytes
            # The message that fills the batch takes the slow path, which seals it.
            is_far_from_end = container.last_sequence_id <= _QUICK_SEQUENCE_ID_MAX
            if is_far_from_end and not container.names_sequence_ids:
                quick.items_max = 3 * (quick_rows - container.rows - 1)

    # Sealing.

    def seal(self) -> int:
        """Seals the open batch. Returns the number of entries passed to the stream so far."""
        with self.lock:
            self._seal()
            self._refresh()
            return self._entries_in

    def _seal(self) -> None:
        self._sync()
        self._submit(self._container.take())

    def _submit(self, batches: Sequence[Batch]) -> None:
        self._last_seal_s = self._loop.time()
        for batch in batches:
            for entry in self._entries(batch):
                self._pass_on(entry)

    def _pass_on(self, entry: PendingEntry) -> None:
        self._entries_in += entry.entries
        self._messages_in += len(entry.listeners)
        self._bytes_in += entry.size_bytes
        self._stream.submit(entry)

    def _entries(self, batch: Batch) -> Iterator[PendingEntry]:
        entry = self._maker.pending(batch, self.clock_ms())
        messages, limit = len(batch.listeners), self._stream.entry_bytes_max
        size_bytes = entry_bytes_after_rebuild_max(entry.size_bytes, messages)
        if messages > 1 and (size_bytes > limit or self._maker.is_too_large(entry)):
            for half in batch.halves():
                yield from self._entries(half)
        elif size_bytes <= limit:
            yield entry
        else:
            self._fail(entry, MessageTooLarge(entry.size_bytes, 1, size_bytes, limit))

    def _set_timer(self) -> None:
        if not self.quick.is_watched:
            self.quick.is_watched = True
            if self._container.is_plain:
                self._loop.call_soon_threadsafe(self._on_timer)
                return
            delay_s = self._batch_delay_s
            self._loop.call_soon_threadsafe(self._loop.call_later, delay_s, self._on_timer)

    def _on_timer(self) -> None:
        with self.lock:
            # NOTE: set to False before the messages are taken, so that a later sender sets the
            # timer again.
            self.quick.is_watched = False
            self._sync()
            if not self._container.rows or self._error is not None:
                self._refresh()
                return
            # The batch is no older than the last seal: while batches fill before their delay, one
            # timer serves one after the other.
            left_s = self._last_seal_s + self._batch_delay_s - self._loop.time()
            if left_s > 0:
                self.quick.is_watched = True
                self._loop.call_later(left_s, self._on_timer)
            else:
                self._seal()
            self._refresh()

    # Receipts. Event loop only.

    def on_done(self, outcomes: Sequence[Outcome]) -> None:
        """Handles answered entries, in order."""
        self._messages_out += sum(len(outcome.entry.listeners) for outcome in outcomes)
        self._bytes_out += sum(outcome.entry.size_bytes for outcome in outcomes)
        for outcome in outcomes:
            if outcome.error is None:
                self.last_sequence_id_stored = outcome.entry.sequence_id
            elif None in outcome.entry.listeners:
                self._record_unreported(outcome.error)
            outcome.notify(self._stream.partition)
        self._entries_out += sum(outcome.entry.entries for outcome in outcomes)
        self._wake_waiting()

    def on_end(self, error: LedgerfoldError) -> None:
        """Fails all pending messages after the stream has ended permanently."""
        with self.lock:
            # The stream fails it after everything that was sent before.
            self._seal()
            self._error = error
            self._refuse_quick()
        self._wake_waiting()

    def _record_unreported(self, error: LedgerfoldError) -> None:
        if self._unreported is None:
            _log.warning("A message without a callback failed: %s", error)
            self._unreported = error

    def _wake_waiting(self) -> None:
        if self._threads_waiting:
            with self.lock:
                self._changed.notify_all()
        waiting, self._tasks_waiting = self._tasks_waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # Waiting.

    def flush(self) -> None:
        """Waits until all messages so far are answered. Raises the first unreported error."""
        mark = self._begin_flush()
        if self._is_io_thread():
            raise NotAllowed("A callback runs in the client's I/O thread and must not flush.")
        with self.lock:
            self._threads_waiting += 1
            try:
                self._changed.wait_for(lambda: self._entries_out >= mark)
            finally:
                self._threads_waiting -= 1
        self.raise_unreported()

    async def flush_async(self) -> None:
        """Waits as `flush`, in a task on the event loop."""
        mark = self._begin_flush()
        while self._entries_out < mark:
            await self.change()
        self.raise_unreported()

    @property
    def is_answered(self) -> bool:
        return self._entries_out >= self._entries_in

    def close_for_new(self) -> None:
        """Seals the open batch; adding raises AlreadyClosed from now on."""
        with self.lock:
            self._seal()
            self._error = self._error or AlreadyClosed(f"The {self._stream.description} is closed.")
            self._refuse_quick()
            self._changed.notify_all()

    def _refuse_quick(self) -> None:
        self.quick.items_max = 0
        self.quick.is_watched = False
        if self._error is not None and self.quick.items:
            self._fail_quick(self._error)

    def change(self) -> asyncio.Future[None]:
        """Returns a future that completes when an entry is answered after this call."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._tasks_waiting[future] = None
        future.add_done_callback(lambda done: self._tasks_waiting.pop(done, None))
        return future

    def _begin_flush(self) -> int:
        """Seals the open batch, as `seal`. Raises the error of a queue that has ended."""
        if self._error is not None:
            self.raise_unreported()
            raise self._error
        return self.seal()

    def raise_unreported(self) -> None:
        """Raises the first error, since the last call, of a message without a callback."""
        error, self._unreported = self._unreported, None
        if error is not None:
            raise error
