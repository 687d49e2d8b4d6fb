"""The rows of entries of one codec, which become one record batch.

`columns` returns the columns that the codec has; the others are null. `dead_rows` are the rows that
a deletion vector lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ledgerfold.frames.query import Query
from ledgerfold.frames.schema import SCHEMA, schema_of
from ledgerfold.storage.entry import Buffer, EntryHeader


class Rows(ABC):
    """The rows of the entries added so far."""

    def __init__(self, query: Query, partition: int) -> None:
        self.query, self.partition = query, partition
        # The rows of the sections, including dead ones; their approximate size in memory.
        self.rows = self.size_bytes = 0

    @abstractmethod
    def add(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        """Adds an entry. Raises InvalidRequest or KafkaError if it does not decode."""

    @abstractmethod
    def columns(self) -> dict[str, pa.Array]: ...

    def dead_rows(self) -> NDArray[np.int64]:
        return np.empty(0, np.int64)

    def batch(self) -> pa.RecordBatch:
        """Returns the rows of the read. Raises as `add`."""
        columns = self.columns()
        columns["partition"] = pa.array(np.full(self.rows, self.partition, np.int32))
        keep = self._filter(columns)
        selected = [
            columns[name] if name in columns else pa.nulls(self.rows, SCHEMA.field(name).type)
            for name in self.query.columns
        ]
        batch = pa.RecordBatch.from_arrays(selected, schema=schema_of(self.query.columns))
        return batch if keep is None else batch.filter(pa.array(keep))

    def _filter(self, columns: dict[str, pa.Array]) -> NDArray[np.bool_] | None:
        keys, dead = self.query.keys, self.dead_rows()
        if keys is None and not len(dead):
            return None
        keep = np.ones(self.rows, np.bool_)
        keep[dead] = False
        if keys is not None:
            is_one = pc.is_in(columns["key"], value_set=pa.array(sorted(keys), pa.binary()))
            keep &= is_one.to_numpy(zero_copy_only=False)
        return keep
