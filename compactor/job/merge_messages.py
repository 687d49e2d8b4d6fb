"""Phase one, second half, for a message strategy: its class decides on each message of a bucket.

Rules (Pulsar's StrategicTwoPhaseCompactor): each key has at most one current message. A message
that the class does not skip replaces it, or removes it if it is empty, and counts as an event; a
skipped message does not. The current messages at the end survive.

Chunks of the log arrive in any order, but the class must be called in log order. So a bucket is
spooled first: in memory up to SPOOL_BYTES, the rest in a file in Spark's local folder. A task holds
that much, one chunk of messages as objects, and the current messages.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np

from ledgerfold.compactor.job.chunk import Message, key_numbers, key_texts, messages
from ledgerfold.compactor.job.rows import Counts, Failure, Messages, Positions, Row
from ledgerfold.compactor.job.scan import to_copy_tasks
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.strategies.loading import RAISED

SPOOL_BYTES = 32 * 1024 * 1024


def merge_messages(
    rows: Iterable[Row], strategy: MessageStrategy, first_ordinals: Sequence[int]
) -> Iterator[Row]:
    """Yields rows for the copy tasks: Positions, ascending, and Counts. Raises StrategyFailed."""
    with Spool() as spool:
        for row in rows:
            match row[1]:
                case Messages() as content:
                    spool.add(content)
                case Failure() as content:
                    for task in range(len(first_ordinals)):
                        yield task, content
                    return
                case Positions() as content:
                    yield from to_copy_tasks(content.values, first_ordinals)
                case _:
                    yield 0, row[1]
        state = decided(strategy, spool)
    yield from to_copy_tasks(state.survivors(), first_ordinals)
    yield 0, Counts(removed_events=state.removed_events, keys=len(state.current))


def decided(strategy: MessageStrategy, spool: Spool) -> ClassState:
    """Asks about all spooled messages. Raises StrategyFailed."""
    state = ClassState(strategy)
    for columns in spool.in_order():
        state.about(columns)
    return state


class ClassState:
    """The state of a strategy's class that decides on the messages of a bucket."""

    def __init__(self, strategy: MessageStrategy) -> None:
        """Creates an instance of the class. Raises StrategyFailed."""
        self._strategy = strategy
        self._strategy_object, self._watch = strategy.create(), strategy.watch()
        self._numbers: dict[str, int] = {}
        self.removed_events = 0
        # The current message of each key, by the key's number; None if there is none.
        self.current: list[Message | None] = []

    def about(self, columns: Mapping[str, bytes]) -> None:
        """Asks about all messages of a chunk. Raises StrategyFailed."""
        # The messages created here are never part of a cycle; searching for cycles in all current
        # ones would take a sixth of the time.
        gc.disable()
        try:
            self._about(columns)
        finally:
            self._watch.done()
            gc.enable()

    def _about(self, columns: Mapping[str, bytes]) -> None:
        should_keep_left = self._strategy_object.should_keep_left
        handle_skipped: Callable[[str, Any], object] | None
        handle_skipped = getattr(self._strategy_object, "handle_skipped", None)
        texts, keys = key_texts(columns), key_numbers(columns)
        numbers = self._numbered(texts)
        standing, watch, accepted = self.current, self._watch, 0
        chunk = messages(columns, map(texts.__getitem__, keys))
        try:
            for number, message in zip(map(numbers.__getitem__, keys), chunk, strict=True):
                watch.question = message
                answer = should_keep_left(standing[number], message)
                if answer is False:
                    accepted += 1
                    standing[number] = message if message.place & 1 else None
                elif answer is not True:
                    break
                elif handle_skipped is not None:
                    handle_skipped(message.key, message)
            else:
                self.removed_events += accepted
                return
        except RAISED as error:  # user code may raise anything
            if isinstance(error, MemoryError):
                raise  # the watch that limits the task reports it
            raise self._strategy.failed(message.message_id, error) from error
        why = f"should_keep_left returned {answer!r:.100}, which is not a bool"
        raise self._strategy.failed(message.message_id, why)

    def _numbered(self, keys: Sequence[str]) -> list[int]:
        """Returns the number of each key among all keys so far."""
        known = self._numbers
        numbers = [known.setdefault(key, len(known)) for key in keys]
        self.current.extend([None] * (len(known) - len(self.current)))
        return numbers

    def survivors(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        places = [message.place for message in self.current if message is not None]
        positions = np.array(places, np.int64) >> 1
        positions.sort()
        return positions


class Spool:
    """A spool for chunks of messages. Use as a context manager."""

    def __init__(self) -> None:
        folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
        self._file = SpooledTemporaryFile(SPOOL_BYTES, dir=folders[0] or None)  # noqa: SIM115
        # First place, offset, the size of each column.
        self._chunks: list[tuple[int, int, dict[str, int]]] = []

    def add(self, content: Messages) -> None:
        sizes = {name: len(column) for name, column in content.columns.items()}
        self._chunks.append((content.first_place, self._file.tell(), sizes))
        self._file.writelines(content.columns.values())

    def in_order(self) -> Iterator[Mapping[str, bytes]]:
        """Yields the columns of each chunk, in log order."""
        for _, offset, sizes in sorted(self._chunks, key=itemgetter(0)):
            self._file.seek(offset)
            yield {name: self._file.read(size) for name, size in sizes.items()}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()
