"""The reading half of the native codec (storage/native.py): an entry's columns and messages."""

from __future__ import annotations

from itertools import pairwise

from google.protobuf.message import DecodeError

from ledgerfold.storage.columns import from_column, offsets_of
from ledgerfold.storage.compression import decompress
from ledgerfold.storage.decoded import DecodedBatch, Routing, decoded_key
from ledgerfold.storage.entry import Buffer, EntryHeader
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.native import HAS_KEY, KEY_IS_BASE64, NULL_VALUE
from ledgerfold.storage.served_entry import row_numbers
from ledgerfold.v1.entry_pb2 import NativeKeys, NativeValues


class NativeBatch(DecodedBatch):
    """A decoded entry. Columns are public; the value section is parsed on first use."""

    __slots__ = (
        "_section",
        "_stored",
        "_stored_offsets",
        "_values",
        "batch_indexes",
        "batch_size",
        "deliver_at_ms",
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
        rows = len(self.flags)
        self.key_blob: bytes = keys.keys
        self.key_offsets = from_column("I", keys.key_offsets).tolist()
        self.value_offsets: list[int] = offsets_of(from_column("I", keys.value_sizes).tolist())
        self.event_times = from_column("q", keys.event_times).tolist() if keys.event_times else None
        self.batch_indexes = (
            from_column("I", keys.batch_indexes).tolist() if keys.batch_indexes else None
        )
        self.batch_size: int = keys.batch_size or rows
        self.deliver_at_ms = keys.deliver_at_ms
        if not (
            rows == header.rows
            and len(self.key_offsets) == len(self.value_offsets) == rows + 1
            and self.key_offsets[-1] == len(self.key_blob)
            and (self.event_times is None or len(self.event_times) == rows)
            and (self.batch_indexes is None or len(self.batch_indexes) == rows)
        ):
            raise InvalidRequest("The columns of a native key section do not match.")
        self._values: NativeValues | None = None
        self._section = value_section
        self.value_blob = b""
        # The rows of the sections that are messages; None: all.
        self._stored: list[int] | None = None
        self._stored_offsets = self.value_offsets
        if header.live_rows:
            self._stored = row_numbers(header.live_rows, rows)
            self._keep(self._stored)
        self.rows = len(self.flags)

    def _keep(self, rows: list[int]) -> None:
        """Keeps only these rows of the key section's columns."""
        self.flags = bytes([self.flags[row] for row in rows])
        self.key_blob, self.key_offsets = _selected(self.key_blob, self.key_offsets, rows)
        sizes = [self._stored_offsets[row + 1] - self._stored_offsets[row] for row in rows]
        self.value_offsets = offsets_of(sizes)
        if self.event_times is not None:
            self.event_times = [self.event_times[row] for row in rows]
        indexes = self.batch_indexes
        self.batch_indexes = rows if indexes is None else [indexes[row] for row in rows]

    def _stored_row(self, row: int) -> int:
        return row if self._stored is None else self._stored[row]

    @staticmethod
    def routing(header: EntryHeader, key_section: Buffer) -> Routing:
        keys = parse_keys(key_section)
        if keys.dispatch_key:
            return Routing(keys.dispatch_key, keys.deliver_at_ms)
        row = row_numbers(header.live_rows, header.rows)[0] if header.live_rows else 0
        flags = keys.flags[row] if row < len(keys.flags) else 0
        if not flags & HAS_KEY:
            return Routing(None, keys.deliver_at_ms)
        key = _slice(keys.keys, keys.key_offsets, row)
        if flags & KEY_IS_BASE64:
            key = decoded_key(key)
        return Routing(key, keys.deliver_at_ms)

    @staticmethod
    def last_batch_index(header: EntryHeader, key_section: Buffer) -> int:
        if header.is_plain:
            return -1
        keys = parse_keys(key_section)
        rows, column = len(keys.flags), keys.batch_indexes
        if rows != header.rows or not rows or len(column) not in (0, 4 * rows):
            raise InvalidRequest("The columns of a native key section do not match.")
        last = rows - 1
        if header.live_rows:
            last = row_numbers(header.live_rows, rows)[-1]
        return int.from_bytes(column[4 * last : 4 * last + 4], "little") if column else last

    @property
    def values(self) -> NativeValues:
        """The parsed value section. Once it is parsed, `value_blob` is its blob."""
        if self._values is None:
            self._values = parse_values(self.header, self._section)
            self.value_blob = self._values.values
            if len(self.value_blob) != self._stored_offsets[-1]:
                raise InvalidRequest("The value sizes of a native entry do not match its values.")
            if self._stored is not None:
                self.value_blob, _ = _selected(self.value_blob, self._stored_offsets, self._stored)
        return self._values

    @property
    def producer_name(self) -> str:
        return self.values.producer_name

    @property
    def schema_version(self) -> bytes:
        return self.values.schema_version

    def batch_index(self, row: int) -> int:
        """Returns the batch index; -1 for a message that was published alone."""
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
            at = 8 * self._stored_row(row)
            return int.from_bytes(column[at : at + 8], "little", signed=True)
        index = row if self.batch_indexes is None else self.batch_indexes[row]
        return self.header.sequence_id - self.batch_size + 1 + index

    def properties(self, row: int) -> dict[str, str]:
        values = self.values
        if not values.property_offsets:
            return {}
        first, end = _pair(values.property_offsets, self._stored_row(row))
        if end > len(values.property_name_offsets) // 4:
            raise InvalidRequest("The property columns of a native entry do not match.")
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
        at = self._stored_row(row)
        return _slice(self.values.ordering_keys, self.values.ordering_key_offsets, at) or None


def _selected(blob: bytes, offsets: list[int], rows: list[int]) -> tuple[bytes, list[int]]:
    """Returns the blob and offsets of these rows."""
    parts = [blob[offsets[row] : offsets[row + 1]] for row in rows]
    return b"".join(parts), offsets_of(list(map(len, parts)))


def _pair(offsets: bytes, row: int) -> tuple[int, int]:
    at = row * 4
    return int.from_bytes(offsets[at : at + 4], "little"), int.from_bytes(
        offsets[at + 4 : at + 8], "little"
    )


def _slice(blob: bytes, offsets: bytes, row: int) -> bytes:
    start, end = _pair(offsets, row)
    return blob[start:end]


def parse_values(header: EntryHeader, section: Buffer) -> NativeValues:
    """Decompresses and parses a value section. Raises InvalidRequest."""
    try:
        values: NativeValues = NativeValues.FromString(decompress(header.compression, section))
    except DecodeError as error:
        raise InvalidRequest(f"A native value section does not parse: {error}") from error
    return values


def parse_keys(key_section: Buffer) -> NativeKeys:
    """Parses a key section. Raises InvalidRequest."""
    try:
        keys: NativeKeys = NativeKeys.FromString(bytes(key_section))
        return keys
    except DecodeError as error:
        raise InvalidRequest(f"A native key section does not parse: {error}") from error
