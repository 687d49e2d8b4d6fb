"""Chooses the partition of a message. Pure: clock and randomness are arguments.

A message with a key goes to the partition that its key hashes to, in every mode, so that the
messages of a key stay in order. Messages without a key go to the partitions in turn (round robin:
one message each, or, with batching, for ten batching delays each, so that batches fill), or all to
one partition, chosen at random.

Sources: Pulsar's Murmur3_32Hash, JavaStringHash, RoundRobinPartitionMessageRouterImpl and
SinglePartitionMessageRouterImpl. Hashes have 31 bits, as in Java.

    >>> murmur3_32("key1") % 4, java_string_hash("key1") % 4
    (1, 2)
    >>> router = RoundRobinRouter(murmur3_32, first=5)
    >>> [router.choose(key, 3) for key in (None, None, "key1", None)]
    [2, 0, 0, 1]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Final, TypeAlias

import mmh3

from ledgerfold.broker.client.messages.options import HashingScheme
from ledgerfold.storage.decoded import key_bytes

HashKey = Callable[[bytes | str], int]
# Length of a partition's turn, in batching delays (Pulsar's
# roundRobinRouterBatchingPartitionSwitchFrequency).
DELAYS_PER_TURN: Final = 10
_KEYS_REMEMBERED = 65_536
_UINT32 = 0xFFFF_FFFF
_INT32_MAX = 0x7FFF_FFFF


@lru_cache(_KEYS_REMEMBERED)
def murmur3_32(key: bytes | str) -> int:
    """MurmurHash3_x86_32 of the key in UTF-8, with seed 0 and the sign bit cleared."""
    return int(mmh3.hash(key_bytes(key), 0, signed=False)) & _INT32_MAX


@lru_cache(_KEYS_REMEMBERED)
def java_string_hash(key: bytes | str) -> int:
    """Java's String.hashCode, over UTF-16, with the sign bit cleared."""
    text = key if isinstance(key, str) else key.decode(errors="surrogateescape")
    data = text.encode("utf-16-be", errors="surrogatepass")
    state = 0
    for at in range(0, len(data), 2):
        state = (31 * state + (data[at] << 8 | data[at + 1])) & _UINT32
    return state & _INT32_MAX


HASHES: Final[dict[HashingScheme, HashKey]] = {
    HashingScheme.Murmur3_32Hash: murmur3_32,
    HashingScheme.JavaStringHash: java_string_hash,
}


class RoundRobinRouter:
    """A router that sends messages without a key to each partition in turn. Thread-safe.

    `turn_ms`: the time for which one partition gets them; 0: one message each. `clock_ms` is called
    only if `turn_ms` is not 0.
    """

    def __init__(
        self,
        hash_key: HashKey,
        first: int,
        turn_ms: int = 0,
        clock_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._hash_key, self._first = hash_key, first
        self._turn_ms, self._clock_ms = turn_ms, clock_ms
        # NOTE: taking the next number is one step under the interpreter's lock.
        self._numbers = count(first)

    def choose(self, key: bytes | str | None, partitions: int) -> int:
        """Returns the index of a partition, below `partitions`."""
        if key is not None:
            return self._hash_key(key) % partitions
        if self._turn_ms:
            return (self._clock_ms() // self._turn_ms + self._first) % partitions
        return next(self._numbers) % partitions


class SinglePartitionRouter:
    """A router that sends all messages without a key to partition `only`. Thread-safe."""

    def __init__(self, hash_key: HashKey, only: int) -> None:
        self._hash_key, self._only = hash_key, only

    def choose(self, key: bytes | str | None, partitions: int) -> int:
        """Returns the index of a partition, below `partitions`."""
        return self._only if key is None else self._hash_key(key) % partitions


Router: TypeAlias = RoundRobinRouter | SinglePartitionRouter
