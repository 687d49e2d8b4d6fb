"""The native codec: columns in Arrow's layout inside two protobuf messages.

The sections are ledgerfold.v1.NativeKeys and NativeValues (proto/ledgerfold/v1/entry.proto, drawn
in docs/FORMATS.md, "Native codec"). A client builds and slices them with nothing but the standard
library; the compactor wraps the same bytes as Arrow arrays. Columns of nothing but defaults are
left out.

Rules:
* A zero value size is a tombstone, whether the value was null or empty.
* Whole batch: row == batch index, `batch_size` is the row count. After a compaction took messages
  away, `batch_indexes` and `batch_size` say where the rest stood.
* Sequence ids rise by one, in batch order, up to the header's, unless the column says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from google.protobuf.message import DecodeError

from ledgerfold.storage.codec import StoredMessage, key_bytes
from ledgerfold.storage.columns import from_column, offsets_of, to_column
from ledgerfold.storage.compression import compress, decompress
from ledgerfold.storage.entry import (
    FLAG_PLAIN,
    Buffer,
    Codec,
    Compression,
    EntryFields,
    EntryHeader,
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
    """The keys end to end, and their sizes in bytes."""
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
    """Collects messages and builds one entry of them. Not for use by several threads at once.

    Producers that care for every tenth of a microsecond append to `keys` and `values` themselves: a
    key as str (joined and encoded in one go) or as bytes, and no flags. Rows at the end without
    flags have a key and a value. `size_bytes` then is theirs to keep.
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

        Either all messages of a batch name a sequence id or none does.
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
        """Gives flags to the rows that were appended without: a key and a value."""
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
        """The entry. `sequence_id` is the last message's; `plain`: one message, no batch."""
        rows = len(self.values)
        if plain and rows != 1:
            raise InvalidRequest(f"A plain entry holds one message, not {rows}.")
        if self.sequence_ids and len(self.sequence_ids) != rows:
            raise InvalidRequest("Either all messages of a batch name a sequence id or none does.")
        self.complete_flags()
        key_blob, key_sizes = _joined(self.keys)
        keys = NativeKeys(
            key_offsets=to_column("I", offsets_of(key_sizes)),
            keys=key_blob,
            flags=bytes(self.flags),
            value_sizes=to_column("I", list(map(len, self.values))),
        )
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


class NativeBatch:
    """A decoded entry. Columns are public; the value section is parsed on first use."""

    __slots__ = (
        "_section",
        "_values",
        "batch_indexes",
        "batch_size",
        "event_times",
        "flags",
        "header",
        "key_blob",
        "key_offsets",
        "rows",
        "value_blob",
        "value_offsets",
    )

    def __init__(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        keys = parse_keys(key_section)
        self.header = header
        self.flags: bytes = keys.flags
        self.rows = rows = len(self.flags)
        self.key_blob: bytes = keys.keys
        self.key_offsets = from_column("I", keys.key_offsets).tolist()
        self.value_offsets: list[int] = offsets_of(from_column("I", keys.value_sizes).tolist())
        self.event_times = from_column("q", keys.event_times).tolist() if keys.event_times else None
        self.batch_indexes = (
            from_column("I", keys.batch_indexes).tolist() if keys.batch_indexes else None
        )
        self.batch_size: int = keys.batch_size or rows
        if not (
            rows == header.message_count
            and len(self.key_offsets) == len(self.value_offsets) == rows + 1
            and self.key_offsets[-1] == len(self.key_blob)
            and (self.event_times is None or len(self.event_times) == rows)
            and (self.batch_indexes is None or len(self.batch_indexes) == rows)
        ):
            raise InvalidRequest("The columns of a native key section do not fit together.")
        self._values: NativeValues | None = None
        self._section = value_section
        self.value_blob = b""

    @property
    def values(self) -> NativeValues:
        """The value section; its blob is `value_blob` from here on."""
        if self._values is None:
            try:
                self._values = NativeValues.FromString(
                    decompress(self.header.compression, self._section)
                )
            except DecodeError as error:
                raise InvalidRequest(
                    f"A native value section that does not parse: {error}"
                ) from error
            self.value_blob = self._values.values
            if len(self.value_blob) != self.value_offsets[-1]:
                raise InvalidRequest("The value sizes of a native entry do not fit its values.")
        return self._values

    @property
    def producer_name(self) -> str:
        return self.values.producer_name

    @property
    def schema_version(self) -> bytes:
        return self.values.schema_version

    def batch_index(self, row: int) -> int:
        """-1 for a message that was published alone."""
        if self.header.is_plain:
            return -1
        return row if self.batch_indexes is None else self.batch_indexes[row]

    def key(self, row: int) -> bytes | None:
        if not self.flags[row] & HAS_KEY:
            return None
        return self.key_blob[self.key_offsets[row] : self.key_offsets[row + 1]]

    def value(self, row: int) -> bytes:
        if self._values is None:
            self.values  # noqa: B018 - parses the section
        offsets = self.value_offsets
        return self.value_blob[offsets[row] : offsets[row + 1]]

    def value_bytes(self, row: int) -> int:
        return self.value_offsets[row + 1] - self.value_offsets[row]

    def contents(self) -> list[bytes]:
        self.values  # noqa: B018 - parses the section
        blob = self.value_blob
        return [blob[start:end] for start, end in pairwise(self.value_offsets)]

    def key_is_base64(self, row: int) -> bool:
        return bool(self.flags[row] & KEY_IS_BASE64)

    def is_null(self, row: int) -> bool:
        return bool(self.flags[row] & NULL_VALUE)

    def event_time_ms(self, row: int) -> int:
        return 0 if self.event_times is None else self.event_times[row]

    def sequence_id(self, row: int) -> int:
        column = self.values.sequence_ids
        if column:
            return int.from_bytes(column[row * 8 : row * 8 + 8], "little", signed=True)
        index = row if self.batch_indexes is None else self.batch_indexes[row]
        return self.header.sequence_id - self.batch_size + 1 + index

    def properties(self, row: int) -> dict[str, str]:
        values = self.values
        if not values.property_offsets:
            return {}
        first, end = _pair(values.property_offsets, row)
        try:
            return {
                _slice(values.property_names, values.property_name_offsets, pair).decode(): _slice(
                    values.property_values, values.property_value_offsets, pair
                ).decode()
                for pair in range(first, end)
            }
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"A property of a message is not UTF-8: {error}") from error

    def ordering_key(self, row: int) -> bytes | None:
        if not self.values.ordering_key_offsets:
            return None
        return _slice(self.values.ordering_keys, self.values.ordering_key_offsets, row) or None

    def messages(self) -> Iterator[StoredMessage]:
        for row in range(self.rows):
            flags = self.flags[row]
            yield StoredMessage(
                batch_index=self.batch_index(row),
                batch_size=self.batch_size,
                key=self.key(row),
                key_is_base64=bool(flags & KEY_IS_BASE64),
                value=self.value(row),
                value_is_null=bool(flags & NULL_VALUE),
                properties=self.properties(row),
                event_time_ms=self.event_time_ms(row),
                sequence_id=self.sequence_id(row),
                ordering_key=self.ordering_key(row),
            )


def _pair(offsets: bytes, row: int) -> tuple[int, int]:
    at = row * 4
    return int.from_bytes(offsets[at : at + 4], "little"), int.from_bytes(
        offsets[at + 4 : at + 8], "little"
    )


def _slice(blob: bytes, offsets: bytes, row: int) -> bytes:
    start, end = _pair(offsets, row)
    return blob[start:end]


def parse_keys(key_section: Buffer) -> NativeKeys:
    """The key section. Raises InvalidRequest."""
    try:
        keys: NativeKeys = NativeKeys.FromString(bytes(key_section))
        return keys
    except DecodeError as error:
        raise InvalidRequest(f"A native key section that does not parse: {error}") from error


class NativeCodec:
    """The codec object that storage/codec.py hands out."""

    def decode(
        self, header: EntryHeader, key_section: Buffer, value_section: Buffer
    ) -> NativeBatch:
        return NativeBatch(header, key_section, value_section)

    def first_key(self, key_section: Buffer) -> bytes | None:
        keys = parse_keys(key_section)
        if not keys.flags or not keys.flags[0] & HAS_KEY:
            return None
        return keys.keys[: int.from_bytes(keys.key_offsets[4:8], "little")]

    def last_batch_index(self, header: EntryHeader, key_section: Buffer) -> int:
        if header.is_plain:
            return -1
        keys = parse_keys(key_section)
        rows, column = len(keys.flags), keys.batch_indexes
        if rows != header.message_count or not rows or len(column) not in (0, 4 * rows):
            raise InvalidRequest("The columns of a native key section do not fit together.")
        return int.from_bytes(column[-4:], "little") if column else rows - 1


NATIVE = NativeCodec()
