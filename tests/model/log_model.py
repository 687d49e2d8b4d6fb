"""A topic as a plain list: what the broker must show, in the simplest form.

>>> model = LogModel()
>>> model.publish(Position(1, 0), [Message(b"a", b"1")], is_batch=False)
>>> model.publish(Position(1, 1), [Message(b"a", b"2")], is_batch=False)
>>> model.compact(Position(1, 1))
>>> [read.message.value for read in model.view(EARLIEST, read_compacted=True)]
[b'2']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.storage.entry import EARLIEST, Position
from tests.model.strategy_model import Message, publishing_order

__all__ = ["EARLIEST", "Entry", "LogModel", "Message", "Read", "final_state"]


class Entry(NamedTuple):
    position: Position
    messages: list[Message]
    is_batch: bool


class Read(NamedTuple):
    """A message as a reader gets it. Batch index -1: published alone."""

    position: Position
    batch_index: int
    message: Message


class LogModel:
    """`entries`: all acknowledged entries, in order; `ledgers`: the existing raw ones.

    `known`: the entries that a compaction knows, from the raw ledgers or from the previous
    compaction.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.known: list[Entry] = []
        self.ledgers: set[int] = set()
        self.horizon: Position | None = None

    def publish(self, position: Position, messages: list[Message], *, is_batch: bool) -> None:
        self.entries.append(Entry(position, messages, is_batch))
        self.known.append(self.entries[-1])
        self.ledgers.add(position.ledger_id)

    def compact(self, horizon: Position) -> None:
        if self.horizon is None:
            self.known = self.raw()
        self.horizon = horizon

    def forget_compacted(self) -> None:
        """Forgets the view after compaction was disabled: the next one begins with the raw entries
        that exist then.
        """
        self.horizon = None

    def truncate(self) -> None:
        self.ledgers.clear()
        self.forget_compacted()

    def raw(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.position.ledger_id in self.ledgers]

    def survivors(self) -> list[Read]:
        """Returns strategy(log up to the horizon), over everything known, even if trimmed since."""
        if self.horizon is None:
            return []
        reads = _reads(entry for entry in self.known if entry.position <= self.horizon)
        return [
            reads[index] for index in publishing_order([read.message for read in reads]).survivors
        ]

    def view(self, start: Position, *, read_compacted: bool) -> list[Read]:
        """Returns what a reader receives from `start` to the end."""
        raw = _reads(self.raw())
        if read_compacted and self.horizon is not None:
            beyond = [read for read in raw if read.position > self.horizon]
            reads = [*self.survivors(), *beyond]
        else:
            reads = raw
        return [read for read in reads if read.position >= start]

    def last_position(self, *, read_compacted: bool) -> Position | None:
        reads = self.view(EARLIEST, read_compacted=read_compacted)
        return reads[-1].position if reads else None


def _reads(entries: Iterable[Entry]) -> list[Read]:
    return [
        Read(entry.position, index if entry.is_batch else -1, message)
        for entry in entries
        for index, message in enumerate(entry.messages)
    ]


def final_state(messages: Iterable[Message]) -> dict[bytes, bytes]:
    """Returns the final state of a service that keeps the last value of each key."""
    state: dict[bytes, bytes] = {}
    for key, value, *_ in messages:
        if key is not None and value:
            state[key] = value
        elif key is not None:
            state.pop(key, None)
    return state
