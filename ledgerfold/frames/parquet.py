"""Record batches as the blocks of a Parquet file, which the caller writes.

>>> import pyarrow.parquet as pq
>>> file = io.BytesIO(b"".join(parquet_blocks(SCHEMA.empty_table().to_batches())))
>>> pq.read_table(file).num_rows
0
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ledgerfold.frames.schema import SCHEMA


def parquet_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yields a file, a row group for each batch, compressed with zstd. Holds one batch in
    memory."""
    written = _Blocks()
    sink = pa.PythonFile(written, mode="w")
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield written.take()
    yield written.take()


class _Blocks(io.RawIOBase):
    """A file, of which only what is not taken yet is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[bytes] = []
        self._size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        block = bytes(data)
        self._blocks.append(block)
        self._size_bytes += len(block)
        return len(block)

    def tell(self) -> int:
        return self._size_bytes

    def take(self) -> bytes:
        taken, self._blocks = b"".join(self._blocks), []
        return taken
