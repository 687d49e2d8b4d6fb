"""Phase one, second half, for a strategy of messages: its class is asked about each of a bucket.

Rules (Pulsar's StrategicTwoPhaseCompactor): of each key one message stands at most. One that the
class does not skip takes the place, or removes the key if it is empty, and is an event; a skipped
one is none. What stands at the end survives.

The stretches of the log come in any order, and the class must be asked in that of the log. So a
bucket is laid aside first: in memory up to SPOOL_BYTES, what is more in a file of Spark's local
folder. A task holds that much, one stretch of messages as objects, and the messages that stand.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.merge import to_copy_tasks
from ledgerfold.compactor.message_rows import Message, messages
from ledgerfold.compactor.rows import Counts, Failure, Messages, Row
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.strategies.loading import RAISED

SPOOL_BYTES = 32 * 1024 * 1024


def merge_messages(
    rows: Iterable[Row], strategy: MessageStrategy, first_ordinals: Sequence[int]
) -> Iterator[Row]:
    """Rows for the copy tasks: Positions, ascending, and Counts."""
    with Spool() as spool:
        for row in rows:
            match row[1]:
                case Messages() as content:
                    spool.add(content)
                case Failure() as content:
                    yield from _for_all(content, first_ordinals)
                    return
                case _:
                    yield 0, row[1]
        try:
            asked = asked_about(strategy, spool)
        except LedgerfoldError as error:
            yield from _for_all(Failure.of(error), first_ordinals)
            return
    yield from to_copy_tasks(asked.survivors(), first_ordinals)
    yield 0, Counts(removed_events=asked.removed_events, keys=len(asked.standing))


def _for_all(failure: Failure, first_ordinals: Sequence[int]) -> Iterator[Row]:
    for task in range(len(first_ordinals)):
        yield task, failure


def asked_about(strategy: MessageStrategy, spool: Spool) -> Asked:
    """All that was laid aside. Raises StrategyFailed."""
    asked = Asked(strategy)
    for content in spool.in_order():
        asked.about(content.rows)
    return asked


class Asked:
    """The class at work on a bucket."""

    def __init__(self, strategy: MessageStrategy) -> None:
        """Raises StrategyFailed."""
        self._strategy = strategy
        self._made = strategy.made()
        self.removed_events = 0
        # Every key that was met; None when nothing stands.
        self.standing: dict[str, Message | None] = {}

    def about(self, rows: pa.RecordBatch) -> None:
        """All of a stretch. Raises StrategyFailed."""
        should_keep_left = self._made.should_keep_left
        handle_skipped: Callable[[str, Any], object] | None
        handle_skipped = getattr(self._made, "handle_skipped", None)
        standing, accepted = self.standing, 0
        stretch = messages(rows)
        # Of the messages made here none is part of a cycle, and looking for some in all that stand
        # costs a sixth of the time.
        gc.disable()
        try:
            for message in stretch:
                key = message.key
                previous = standing.get(key)
                answer = should_keep_left(previous, message)
                if answer is False:
                    accepted += 1
                    standing[key] = message if message.place & 1 else None
                elif answer is not True:
                    break
                else:
                    if previous is None:
                        standing[key] = None
                    if handle_skipped is not None:
                        handle_skipped(key, message)
            else:
                self.removed_events += accepted
                return
        except RAISED as error:  # a person's code: it may raise anything
            raise self._strategy.failed(message.message_id, error) from error
        finally:
            gc.enable()
        why = f"should_keep_left answered {answer!r:.100}, which is no bool"
        raise self._strategy.failed(message.message_id, why)

    def survivors(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        places = [message.place for message in self.standing.values() if message is not None]
        positions = np.array(places, np.int64) >> 1
        positions.sort()
        return positions


class Spool:
    """Stretches of messages, laid aside. Use as a context manager."""

    def __init__(self) -> None:
        folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
        self._file = SpooledTemporaryFile(SPOOL_BYTES, dir=folders[0] or None)  # noqa: SIM115
        # First place, offset, size.
        self._stretches: list[tuple[int, int, int]] = []

    def add(self, content: Messages) -> None:
        self._stretches.append((content.first_place, self._file.tell(), len(content.blob)))
        self._file.write(content.blob)

    def in_order(self) -> Iterator[Messages]:
        """In the order of the log."""
        for first_place, offset, size_bytes in sorted(self._stretches):
            self._file.seek(offset)
            yield Messages(first_place, self._file.read(size_bytes))

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()
