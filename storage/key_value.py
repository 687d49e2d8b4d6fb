"""The interface of the key-value store for the metadata, and an implementation in memory.

Keys and values are bytes; one write is one atomic, synced batch. The store has one writer, so
writes are unconditional. The persistent implementation uses RocksDB (storage/rocks.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol


class KeyValueStore(Protocol):
    """A key-value store. Threads may share it: a read sees all of a write, or none of it."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Returns all pairs whose key begins with `prefix`, in order of key."""
        ...

    def last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Returns the last pair of scan(prefix) without reading the others."""
        ...

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """Writes atomically and durably. Raises DiskFailure; then reads show nothing of it."""
        ...

    def close(self) -> None: ...


class MemoryKeyValue:
    """A KeyValueStore on a dictionary; the data live as long as the object."""

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            return self._pairs.get(key)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return sorted(pair for pair in self._pairs.items() if pair[0].startswith(prefix))

    def last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        with self._lock:
            pairs = (pair for pair in self._pairs.items() if pair[0].startswith(prefix))
            return max(pairs, default=None)

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        with self._lock:
            for key in deletes:
                self._pairs.pop(key, None)
            self._pairs.update(puts)

    def close(self) -> None:
        """Does nothing."""
