"""The files of a topic's ledgers, as its log gets at them: on a thread, and until it is unloaded.

After an unload others may have deleted what this log's record still names: what is missing then is
no damage, the topic has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TypeVar

from ledgerfold.broker.log.state import LogState
from ledgerfold.storage.errors import CompactedLedgerDamaged, MissingFile
from ledgerfold.storage.ledger import LedgerReader, LedgerStore
from ledgerfold.v1.records_pb2 import LedgerRecord

_T = TypeVar("_T")


class LogFiles:
    """`executor` does the work of the disk for all parts of the log."""

    def __init__(self, store: LedgerStore, executor: Executor, state: LogState) -> None:
        self.store, self.executor, self._state = store, executor, state

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, call)

    def record(self, ledger_id: int) -> LedgerRecord:
        """As it is now. Raises MissingFile, Moved."""
        with self.moved_if_closed():
            return self.store.record(ledger_id)

    def open_reader(self, ledger_id: int, record: LedgerRecord | None) -> LedgerReader:
        """`record`: that of a closed ledger. Raises MissingFile, Moved."""
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
