"""Access of a log to its ledger files: on a thread, and until the topic is unloaded.

After an unload another owner may have deleted ledgers that this log's record still names: a missing
file then means that the topic has moved, not damage.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TypeVar

from ledgerfold.broker.log.state import LogState
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import CompactedLedgerDamaged, MissingFile
from ledgerfold.storage.ledger import LedgerReader, LedgerStore, StoredEntry
from ledgerfold.v1.records_pb2 import LedgerRecord

_T = TypeVar("_T")


class LogFiles:
    """The ledger files of one log. `executor` runs the disk work of all parts of the log."""

    def __init__(self, store: LedgerStore, executor: Executor, state: LogState) -> None:
        self.store, self.executor, self._state = store, executor, state

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, call)

    async def read(
        self, reader: LedgerReader, position: Position, bytes_max: int, end: Position
    ) -> list[StoredEntry]:
        """Reads cached entries on the loop, because a thread costs more, and others on a thread."""
        try:
            entries = reader.read(position, bytes_max=bytes_max, end=end, wait=False)
        except BlockingIOError:
            read = functools.partial(reader.read, position, bytes_max=bytes_max, end=end)
            return await self.in_thread(read)
        # Yields: a fast reader must not monopolize the loop.
        await asyncio.sleep(0)
        return entries

    def record(self, ledger_id: int) -> LedgerRecord:
        """Returns the ledger's current record. Raises MissingFile, Moved."""
        with self.moved_if_closed():
            return self.store.record(ledger_id)

    def open_reader(self, ledger_id: int, record: LedgerRecord | None) -> LedgerReader:
        """Opens a reader. `record`: that of a closed ledger. Raises MissingFile, Moved."""
        with self.moved_if_closed():
            return self.store.open_reader(ledger_id, record)

    @contextmanager
    def moved_if_closed(self) -> Iterator[None]:
        try:
            yield
        except (MissingFile, CompactedLedgerDamaged):
            if self._state.closed is not None:
                raise self._state.closed from None
            raise
