"""The key-value store below the metadata: its contract, and a twin in memory of the real one.

Keys and values are bytes; one write is one atomic, synced batch. There is one writer, so nothing
here compares before it writes. The real one is RocksDB (storage/rocks.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol


class KeyValueStore(Protocol):
    """Threads may share it: a read sees all of a write, or nothing."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """All pairs whose key begins with `prefix`, in order of key."""
        ...

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """All or nothing, durable on return. Raises DiskFailure; reads show nothing of it then."""
        ...

    def close(self) -> None: ...


class MemoryKeyValue:
    """A KeyValueStore that is a dictionary: what was written survives as long as the object."""

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            return self._pairs.get(key)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return sorted(pair for pair in self._pairs.items() if pair[0].startswith(prefix))

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        with self._lock:
            for key in deletes:
                self._pairs.pop(key, None)
            self._pairs.update(puts)

    def close(self) -> None:
        """Nothing to let go."""
