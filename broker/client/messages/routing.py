"""Which partition a message goes to. Pure: clock and chance are arguments.

A message with a key goes where its key hashes to, whatever the mode, so that a key's messages stay
in order. Those without one take turns (round robin: one by one, or, when they are batched, for ten
batching delays each, so that batches fill), or all go to one partition, chosen at random.

Sources: Pulsar's Murmur3_32Hash, JavaStringHash, RoundRobinPartitionMessageRouterImpl and
SinglePartitionMessageRouterImpl. Hashes are 31 bits, so that they are the same in Java.

    >>> murmur3_32("key1") % 4, java_string_hash("key1") % 4
    (1, 2)
    >>> router = RoundRobinRouter(murmur3_32, first=5)
    >>> [router.choose(key, 3) for key in (None, None, "key1", None)]
    [2, 0, 0, 1]
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Final, Protocol

from ledgerfold.broker.client.messages.options import HashingScheme
from ledgerfold.storage.decoded import key_bytes

HashKey = Callable[[str], int]
# Of so many batching delays is a turn (Pulsar's roundRobinRouterBatchingPartitionSwitchFrequency).
DELAYS_PER_TURN: Final = 10
_KEYS_REMEMBERED = 65_536
_UINT32 = 0xFFFF_FFFF
_INT32_MAX = 0x7FFF_FFFF


@lru_cache(_KEYS_REMEMBERED)
def murmur3_32(key: str) -> int:
    """MurmurHash3_x86_32 with seed 0 of the key's UTF-8, without its sign."""
    data = key_bytes(key)
    # What is left behind the last whole block, or nothing, is the tail.
    padded = data + bytes(4 - len(data) % 4)
    *blocks, tail = struct.unpack(f"<{len(padded) // 4}I", padded)
    state = 0
    for block in blocks:
        state ^= _scrambled(block)
        state = ((state << 13 | state >> 19) * 5 + 0xE654_6B64) & _UINT32
    state ^= _scrambled(tail) ^ len(data)
    state = ((state ^ state >> 16) * 0x85EB_CA6B) & _UINT32
    state = ((state ^ state >> 13) * 0xC2B2_AE35) & _UINT32
    return (state ^ state >> 16) & _INT32_MAX


def _scrambled(block: int) -> int:
    block = block * 0xCC9E_2D51 & _UINT32
    return (block << 15 | block >> 17) * 0x1B87_3593 & _UINT32


@lru_cache(_KEYS_REMEMBERED)
def java_string_hash(key: str) -> int:
    """Java's String.hashCode, over UTF-16, without its sign."""
    data = key.encode("utf-16-be", errors="surrogatepass")
    state = 0
    for at in range(0, len(data), 2):
        state = (31 * state + (data[at] << 8 | data[at + 1])) & _UINT32
    return state & _INT32_MAX


HASHES: Final[dict[HashingScheme, HashKey]] = {
    HashingScheme.Murmur3_32Hash: murmur3_32,
    HashingScheme.JavaStringHash: java_string_hash,
}


class Router(Protocol):
    """May be asked by several threads."""

    def choose(self, key: str | None, partitions: int) -> int:
        """The partition, of so many."""
        ...


class RoundRobinRouter:
    """`turn_ms`: how long one partition gets what has no key; 0: for one message.

    `clock_ms` is asked only when there are turns of time.
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

    def choose(self, key: str | None, partitions: int) -> int:
        if key is not None:
            return self._hash_key(key) % partitions
        if self._turn_ms:
            return (self._clock_ms() // self._turn_ms + self._first) % partitions
        return next(self._numbers) % partitions


class SinglePartitionRouter:
    """All messages without a key go to partition `only`."""

    def __init__(self, hash_key: HashKey, only: int) -> None:
        self._hash_key, self._only = hash_key, only

    def choose(self, key: str | None, partitions: int) -> int:
        return self._only if key is None else self._hash_key(key) % partitions
