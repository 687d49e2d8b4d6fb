"""The native codec: columns in Arrow's layout inside two protobuf messages.

The sections are ledgerfold.v1.NativeKeys and NativeValues (proto/ledgerfold/v1/entry.proto, shown
in docs/FORMATS.md, "Native codec"). A client builds and slices them with the standard library only;
the compactor wraps the same bytes as Arrow arrays. Columns that hold only defaults are omitted.

Rules:
* A zero value size is a tombstone, whether the value was null or empty.
* In a whole batch, row == batch index, and `batch_size` is the row count. After a compaction has
  removed messages, `batch_indexes` and `batch_size` give the original indexes and size.
* Sequence ids rise by one, in batch order, up to the header's, unless the column is present.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.storage.columns import offsets_of, to_column
from ledgerfold.storage.compression import compress
from ledgerfold.storage.decoded import key_bytes
from ledgerfold.storage.entry import (
    FLAG_PLAIN,
    Codec,
    Compression,
    EntryFields,
    build_entry,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.entry_pb2 import (
    NATIVE_FLAG_HAS_KEY,
    NATIVE_FLAG_KEY_IS_BASE64,
    NATIVE_FLAG_NULL_VALUE,
    NativeKeys,
    NativeValues,
)

HAS_KEY = int(NATIVE_FLAG_HAS_KEY)
NULL_VALUE = int(NATIVE_FLAG_NULL_VALUE)
KEY_IS_BASE64 = int(NATIVE_FLAG_KEY_IS_BASE64)


def _joined(keys: Sequence[bytes | str]) -> tuple[bytes, list[int]]:
    """Returns the concatenated keys, and their sizes in bytes."""
    try:
        text = "".join(keys)  # type: ignore[arg-type]
    except TypeError:
        pass  # not all are str
    else:
        if text.isascii():
            return text.encode(), list(map(len, keys))
    encoded = [key_bytes(key) for key in keys]
    return b"".join(encoded), list(map(len, encoded))


class NativeBatchBuilder:
    """A builder that collects messages for one entry. Not thread-safe.

    Producers that optimize each tenth of a microsecond append to `keys` and `values` directly: a
    key as str (all are encoded at once) or as bytes, without flags. Rows at the end without flags
    have a key and a value. These producers maintain `size_bytes` themselves, if they need it.
    """

    def __init__(self, producer_name: str = "", schema_version: bytes = b"") -> None:
        self.producer_name = producer_name
        self.schema_version = schema_version
        self.clear()

    def clear(self) -> None:
        self.keys: list[bytes | str] = []
        self.values: list[bytes] = []
        self.flags = bytearray()
        self.event_times: dict[int, int] = {}
        self.properties: dict[int, dict[str, str]] = {}
        self.ordering_keys: dict[int, bytes] = {}
        self.sequence_ids: list[int] = []
        # The delivery time of the whole entry; 0: at once.
        self.deliver_at_ms = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.values)

    def add(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        key_is_base64: bool = False,
        properties: dict[str, str] | None = None,
        event_time_ms: int = 0,
        ordering_key: bytes | None = None,
        sequence_id: int | None = None,
    ) -> None:
        """Adds one message. `value` None is a null value.

        Either all messages of a batch set a sequence id, or none does.
        """
        row = len(self.values)
        self.complete_flags()
        flags = 0
        if key is not None:
            flags = HAS_KEY | (KEY_IS_BASE64 if key_is_base64 else 0)
        if value is None:
            flags |= NULL_VALUE
        self.keys.append(key or b"")
        self.values.append(value or b"")
        self.flags.append(flags)
        if event_time_ms:
            self.event_times[row] = event_time_ms
        if properties:
            self.properties[row] = properties
        if ordering_key is not None:
            self.ordering_keys[row] = ordering_key
        if sequence_id is not None:
            self.sequence_ids.append(sequence_id)
        self.size_bytes += len(key or b"") + len(value or b"") + 9

    def complete_flags(self) -> None:
        """Sets the flags of rows that were appended without flags: they have a key and a value."""
        missing = len(self.values) - len(self.flags)
        if missing:
            self.flags.extend(bytes((HAS_KEY,)) * missing)

    def build(
        self,
        *,
        sequence_id: int,
        publish_time_ms: int,
        compression: int = Compression.NONE,
        plain: bool = False,
    ) -> bytes:
        """Builds the entry. `sequence_id`: the last message's; `plain`: one message, no batch."""
        rows = len(self.values)
        if plain and rows != 1:
            raise InvalidRequest(f"A plain entry holds one message, not {rows}.")
        if self.sequence_ids and len(self.sequence_ids) != rows:
            raise InvalidRequest("Set a sequence id on all messages of a batch, or on none.")
        self.complete_flags()
        key_blob, key_sizes = _joined(self.keys)
        keys = NativeKeys(
            key_offsets=to_column("I", offsets_of(key_sizes)),
            keys=key_blob,
            flags=bytes(self.flags),
            value_sizes=to_column("I", list(map(len, self.values))),
        )
        if self.deliver_at_ms:
            keys.deliver_at_ms = self.deliver_at_ms
        if self.ordering_keys.get(0):
            keys.dispatch_key = self.ordering_keys[0]
        if self.event_times:
            keys.event_times = to_column("q", [self.event_times.get(row, 0) for row in range(rows)])
        values = NativeValues(
            values=b"".join(self.values),
            producer_name=self.producer_name,
            schema_version=self.schema_version,
        )
        if self.properties:
            self._add_properties(values, rows)
        if self.ordering_keys:
            ordering = [self.ordering_keys.get(row, b"") for row in range(rows)]
            values.ordering_key_offsets = to_column("I", offsets_of(list(map(len, ordering))))
            values.ordering_keys = b"".join(ordering)
        ids = self.sequence_ids
        if ids and ids != list(range(sequence_id - rows + 1, sequence_id + 1)):
            values.sequence_ids = to_column("q", ids)
        return build_entry(
            keys.SerializeToString(),
            compress(compression, values.SerializeToString()),
            EntryFields(
                message_count=rows,
                sequence_id=sequence_id,
                publish_time_ms=publish_time_ms,
                codec=Codec.NATIVE,
                compression=compression,
                flags=FLAG_PLAIN if plain else 0,
            ),
        )

    def _add_properties(self, values: NativeValues, rows: int) -> None:
        counts = [len(self.properties.get(row, ())) for row in range(rows)]
        pairs = [pair for row in range(rows) for pair in self.properties.get(row, {}).items()]
        names = [name.encode() for name, _ in pairs]
        contents = [content.encode() for _, content in pairs]
        values.property_offsets = to_column("I", offsets_of(counts))
        values.property_name_offsets = to_column("I", offsets_of(list(map(len, names))))
        values.property_names = b"".join(names)
        values.property_value_offsets = to_column("I", offsets_of(list(map(len, contents))))
        values.property_values = b"".join(contents)
