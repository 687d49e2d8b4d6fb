"""The key-value store below the metadata: RocksDB, and a twin in memory.

Keys and values are bytes; one write is one atomic, synced batch. There is one writer, so nothing
here compares before it writes (RocksDB through rocksdict has no transactions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from storage.errors import Corruption, DiskFailure

_WRITE_BUFFER_BYTES = 4 * 1024 * 1024


class KeyValueStore(Protocol):
    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """All pairs whose key begins with `prefix`, in order of key."""
        ...

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """All or nothing, durable on return. Raises DiskFailure."""
        ...

    def close(self) -> None: ...


class RocksKeyValue:
    """A KeyValueStore in a folder."""

    def __init__(self, path: Path) -> None:
        # NOTE: imported here so that what only reads segments does not load RocksDB.
        from rocksdict import Options, Rdict, WriteBatch, WriteOptions

        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1024 * 1024)
        self._path = str(path)
        self._batch = WriteBatch
        self._options = WriteOptions()
        self._options.sync = True
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._typed_errors("Opening the metadata"):
            self._db = Rdict(self._path, options)

    def get(self, key: bytes) -> bytes | None:
        with self._typed_errors("A metadata read"):
            value = self._db.get(key)
        return None if value is None else bytes(value)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        pairs = []
        with self._typed_errors("A metadata read"):
            for key, value in self._db.items(from_key=prefix):
                if not key.startswith(prefix):
                    break
                pairs.append((bytes(key), bytes(value)))
        return pairs

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        batch = self._batch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        for key, value in puts.items():
            batch.put(key, value)
        with self._typed_errors("A metadata write"):
            self._db.write(batch, self._options)

    @contextmanager
    def _typed_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # rocksdict raises plain Exception for whatever RocksDB reports.
            text = str(error)
            if text.startswith("Corruption"):
                raise Corruption(self._path, 0, "an undamaged RocksDB store", text) from error
            raise DiskFailure(self._path, operation, OSError(0, text)) from error

    def close(self) -> None:
        self._db.close()


class MemoryKeyValue:
    """A KeyValueStore that is a dictionary: what was written survives as long as the object."""

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._pairs.get(key)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted(pair for pair in self._pairs.items() if pair[0].startswith(prefix))

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        for key in deletes:
            self._pairs.pop(key, None)
        self._pairs.update(puts)

    def close(self) -> None:
        """Nothing to let go."""
