"""Records which messages were sent, acknowledged and read, and the errors found.

A producer sends in order and continues only after the previous receipt, so the acknowledged
messages are a prefix of its sequence ids. A snapshot has, of each key, the last acknowledged
sequence id; a read that began later must have met that one or a later one of the same key. It may
have met none, or an older one (of a reader that a compaction overtook), when the last one deletes
the key. A sent message without a receipt may exist or not.

>>> books = Books({"t": ["p"]}, seed=1)
>>> books.acknowledged("p", 9)
>>> books.producers["p"].acknowledged, books.lost_count
(9, 0)
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.torture.messages import Messages
from tests.torture.seen import Latest, empty

# How far beyond the last receipt a producer may have sent, and its reports may lag behind.
_AHEAD_MAX = 5_000
# Remembered one by one, at most; so many errors of different kinds, too.
_REMEMBERED_MAX = 100_000
_ERRORS_MAX = 100
MessageKey = tuple[str, int]


class ProducerBook:
    """One producer's. `latest` has the last acknowledged sequence id of each key."""

    def __init__(self, topic: str, messages: Messages) -> None:
        self.topic, self.messages = topic, messages
        self.sent = self.acknowledged = -1
        self.latest = empty()

    def advance(self, acknowledged: int) -> None:
        key_index, latest = self.messages.key_index, self.latest
        for sequence_id in range(self.acknowledged + 1, acknowledged + 1):
            latest[key_index(sequence_id)] = sequence_id
        self.acknowledged = max(self.acknowledged, acknowledged)


class Books:
    """The books of all topics. Threads may share them. `tell` receives descriptions of failures."""

    def __init__(
        self,
        producers: Mapping[str, Iterable[str]],
        seed: int,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.producers = {
            name: ProducerBook(topic, Messages(name, seed))
            for topic, names in producers.items()
            for name in names
        }
        # Of Kafka topics: the offset of each acknowledged message, by sequence id.
        self.offsets = {name: array("q") for name in self.producers}
        self.moved: set[MessageKey] = set()
        self.duplicated: set[MessageKey] = set()
        self.disordered: set[MessageKey] = set()
        self.foreign: set[MessageKey] = set()
        self.errors: Counter[str] = Counter()
        # Where lost messages were missed first.
        self.missed_by: Counter[str] = Counter()
        self._lost: set[MessageKey] = set()
        self._tell = tell
        self._lock = threading.Lock()

    # Reports of clients.

    def sent(self, producer: str, last: int) -> None:
        with self._lock:
            book = self.producers[producer]
            book.sent = max(book.sent, last)

    def acknowledged(self, producer: str, last: int) -> None:
        with self._lock:
            self.producers[producer].advance(last)

    def stored(self, producer: str, first: int, count: int, offset: int) -> None:
        """Records receipts from that offset on; receipts arrive in order, each once."""
        with self._lock:
            offsets = self.offsets[producer]
            if first != len(offsets):
                _remember(self.disordered, producer, first)
            offsets.extend(range(offset, offset + count))

    def met(self, producer: str, pairs: Sequence[int]) -> None:
        """Records sequence ids, and the offset at which each was read."""
        with self._lock:
            known = self.offsets[producer]
            for sequence_id, offset in zip(pairs[::2], pairs[1::2], strict=True):
                if sequence_id < len(known) and known[sequence_id] != offset:
                    if (producer, sequence_id) not in self.moved:
                        self._tell(f"{producer} {sequence_id} moved: {known[sequence_id]} {offset}")
                    _remember(self.moved, producer, sequence_id)

    def problem(self, kind: str, producer: str, sequence_id: int) -> None:
        """`kind`: "duplicate", "disorder" or "foreign"."""
        kinds = {
            "duplicate": self.duplicated,
            "disorder": self.disordered,
            "foreign": self.foreign,
        }
        with self._lock:
            is_new = (producer, sequence_id) not in kinds[kind]
            _remember(kinds[kind], producer, sequence_id)
        if is_new:
            self._tell(f"{kind}: {producer} {sequence_id}")

    def gap(self, producer: str, first: int, last: int) -> None:
        """Returns the messages that the durable consumer was never given, though it was given later
        ones.
        """
        self._tell(f"a gap in {producer}: {first} to {last} came neither raw nor to the consumer")
        with self._lock:
            for sequence_id in range(first, last + 1):
                self._lose(producer, sequence_id, "consumer")

    def error(self, what: str, message: str) -> None:
        text = f"{what}: {message[:200]}"
        self._tell(text)
        with self._lock:
            if text in self.errors or len(self.errors) < _ERRORS_MAX:
                self.errors[text] += 1

    # Judging.

    @property
    def lost_count(self) -> int:
        return len(self._lost)

    def lost(self) -> list[str]:
        """Returns how many messages of each producer were lost, and between which sequence ids."""
        by_producer: dict[str, list[int]] = {}
        with self._lock:
            for producer, sequence_id in self._lost:
                by_producer.setdefault(producer, []).append(sequence_id)
        return [
            f"{producer}: {len(ids)} between {min(ids)} and {max(ids)}"
            for producer, ids in sorted(by_producer.items())
        ]

    def snapshot(self, topic: str) -> Latest:
        """Returns the last acknowledged sequence id of each key, as of now."""
        with self._lock:
            return {
                name: array("q", book.latest)
                for name, book in self.producers.items()
                if book.topic == topic
            }

    def judge(self, expected: Latest, found: Latest, where: str, *, is_exact: bool = False) -> int:
        """Compares the messages of a read with a snapshot taken before it began.

        `is_exact`: nothing was sent or compacted meanwhile, so a deleted key must be gone. Returns
        how many messages it missed.
        """
        missed = 0
        with self._lock:
            for name, wanted in expected.items():
                for index, sequence_id in enumerate(wanted):
                    met = found[name][index]
                    if met >= sequence_id:
                        continue
                    if not self._is_excused(name, sequence_id, met, is_exact):
                        self._lose(name, sequence_id, where)
                        missed += 1
        return missed

    def _is_excused(self, name: str, sequence_id: int, met: int, is_exact: bool) -> bool:
        book = self.producers[name]
        messages = book.messages
        if messages.is_tombstone(sequence_id):
            return met < 0 or not is_exact
        if is_exact:
            return False
        # A later one, whose receipt came after the snapshot, may have deleted the key.
        upto = book.acknowledged + _AHEAD_MAX
        return any(map(messages.is_tombstone, messages.later(sequence_id, upto)))

    def _lose(self, producer: str, sequence_id: int, where: str) -> None:
        known = len(self._lost)
        _remember(self._lost, producer, sequence_id)
        self.missed_by[where] += len(self._lost) - known

    # The end.

    def totals(self) -> tuple[int, int]:
        """Messages sent and acknowledged."""
        with self._lock:
            books = self.producers.values()
            return sum(book.sent + 1 for book in books), sum(
                book.acknowledged + 1 for book in books
            )


def _remember(found: set[MessageKey], producer: str, sequence_id: int) -> None:
    if len(found) < _REMEMBERED_MAX:
        found.add((producer, sequence_id))
