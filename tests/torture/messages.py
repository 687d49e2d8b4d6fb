"""The messages of producers, derived from the seed, the producer and the sequence id.

So no sent message has to be stored. A key belongs to one producer, so the order of its messages is
that of their sequence ids. Half of the messages go round COLD_KEYS keys, so that a lost one is its
key's last for a while and is missed; they are large, so that a run takes its time to copy them. The
others fall on HOT_KEYS keys and leave little.

>>> messages = Messages("p", seed=1)
>>> messages.parse(messages.content(5)) == (5, messages.key_index(5))
True
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

COLD_KEYS = 10_000
HOT_KEYS = 40
KEYS = COLD_KEYS + HOT_KEYS
# About one message in so many deletes its key.
_TOMBSTONE_EVERY = 29
_COLD_PADDING = b"." * 1_200
_HOT_PADDING = b"." * 40


class Messages:
    """One producer's, by sequence id."""

    def __init__(self, producer: str, seed: int) -> None:
        self.producer = producer
        self._salt = zlib.crc32(f"{producer}/{seed}".encode())

    def _random(self, sequence_id: int) -> int:
        return zlib.crc32(sequence_id.to_bytes(8, "little"), self._salt)

    def key_index(self, sequence_id: int) -> int:
        if sequence_id % 2:
            return COLD_KEYS + self._random(sequence_id) % HOT_KEYS
        return (sequence_id // 2) % COLD_KEYS

    def key(self, sequence_id: int) -> str:
        return f"{self.producer}/{self.key_index(sequence_id)}"

    def is_tombstone(self, sequence_id: int) -> bool:
        return (self._random(sequence_id) >> 8) % _TOMBSTONE_EVERY == 0

    def content(self, sequence_id: int) -> bytes:
        """The value; empty for a tombstone."""
        if self.is_tombstone(sequence_id):
            return b""
        padding = _HOT_PADDING if sequence_id % 2 else _COLD_PADDING
        return b"%d %d %s" % (sequence_id, self.key_index(sequence_id), padding)

    def later(self, sequence_id: int, upto: int) -> Iterator[int]:
        """Returns the messages of the same key, above `sequence_id` and below `upto`."""
        if sequence_id % 2 == 0:
            yield from range(sequence_id + 2 * COLD_KEYS, upto, 2 * COLD_KEYS)
            return
        index = self.key_index(sequence_id)
        for each in range(sequence_id + 2, upto, 2):
            if self.key_index(each) == index:
                yield each

    @staticmethod
    def parse(content: bytes) -> tuple[int, int]:
        """Sequence id and key index, as a value that is no tombstone says. Raises ValueError."""
        sequence_id, key_index, _ = content.split(b" ")
        return int(sequence_id), int(key_index)
