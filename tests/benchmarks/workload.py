"""Seeded keyed messages, and the entries that a batching producer would build of them.

Keys follow a Zipf distribution (weight 1 / rank ** 1.1) over `keys` names in a shuffled order;
values are slices of a pool of random bytes, so nothing compresses. The same seed produces the same
messages. Event times, if requested, rise by a millisecond per message, each up to SHUFFLE_MS early.

    >>> workload = Workload(messages=3, keys=2, value_bytes=5)
    >>> [len(value) for _, value in workload.pairs()]
    [5, 5, 5]
    >>> sum(rows for _, rows in workload.entries())
    3
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ledgerfold.storage.kafka.entries import entry_of_parts
from ledgerfold.storage.kafka.records import batch_parts
from ledgerfold.storage.native import HAS_KEY, NativeBatchBuilder

ENTRY_BYTES = 128 * 1024
ZIPF_EXPONENT = 1.1
FIRST_EVENT_MS = 1_700_000_000_000
SHUFFLE_MS = 1_000
_POOL_BYTES = 4 * 1024 * 1024
_CHUNK = 100_000
# The bytes that codec and header add to a message; entries are just below ENTRY_BYTES.
_ROW_BYTES = 9
_HEADER_BYTES = 128


@dataclass(frozen=True)
class Workload:
    """`messages` of `value_bytes` each, over at most `keys` keys."""

    messages: int
    keys: int
    value_bytes: int
    seed: int = 7
    has_event_times: bool = False

    @property
    def rows_per_entry(self) -> int:
        per_row = self.value_bytes + len(_key(0)) + _ROW_BYTES + 8 * self.has_event_times
        return max((ENTRY_BYTES - _HEADER_BYTES) // per_row, 1)

    @property
    def size_bytes(self) -> int:
        """Returns the size of the values."""
        return self.messages * self.value_bytes

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        for keys, values in self._chunks(_CHUNK):
            yield from zip(keys, values, strict=True)

    def entries(self) -> Iterator[tuple[bytes, int]]:
        """Yields each entry and its number of messages; sequence ids rise from 0."""
        builder = NativeBatchBuilder("benchmark")
        sequence_id = -1
        random = np.random.default_rng(self.seed)
        for keys, values in self._chunks(self.rows_per_entry):
            builder.clear()
            builder.keys, builder.values = [*keys], values
            builder.flags = bytearray([HAS_KEY]) * len(keys)
            if self.has_event_times:
                early = random.integers(0, SHUFFLE_MS, len(keys))
                times = FIRST_EVENT_MS + sequence_id + np.arange(len(keys)) - early
                builder.event_times = dict(enumerate(times.tolist()))
            sequence_id += len(keys)
            yield builder.build(sequence_id=sequence_id, publish_time_ms=1), len(keys)

    def record_batches(self) -> Iterator[tuple[bytes, int]]:
        """Yields the same messages for a Kafka topic, as an idempotent producer sends them."""
        sent = 0
        for keys, values in self._chunks(self.rows_per_entry):
            header, section = batch_parts(
                keys,
                values,
                [FIRST_EVENT_MS] * len(keys),
                producer_id=1,
                producer_epoch=0,
                base_sequence=sent,
            )
            sent += len(keys)
            yield (
                entry_of_parts(
                    header, section, sequence_id=sent - 1, publish_time_ms=FIRST_EVENT_MS
                ),
                len(keys),
            )

    def _chunks(self, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        random = np.random.default_rng(self.seed)
        cumulative = np.cumsum(1.0 / np.arange(1, self.keys + 1) ** ZIPF_EXPONENT)
        cumulative /= cumulative[-1]
        ranked = random.permutation(self.keys)
        pool = random.bytes(_POOL_BYTES)
        names = [_key(number) for number in range(self.keys)]
        left = self.messages
        while left:
            count = min(rows, left)
            left -= count
            picked = ranked[np.searchsorted(cumulative, random.random(count))]
            starts = random.integers(0, _POOL_BYTES - self.value_bytes, count)
            yield (
                [names[number] for number in picked.tolist()],
                [pool[start : start + self.value_bytes] for start in starts.tolist()],
            )


def _key(number: int) -> bytes:
    return b"key-%08d" % number
