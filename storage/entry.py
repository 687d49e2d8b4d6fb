"""The entry record: a fixed header, a key section, a value section.

An entry is what a producer sends at once: a batch of 1..n messages. It is the unit of storage and
of acknowledgement. Storage never looks into the sections; a codec does (storage/codec.py). The
producer sends, a segment stores and a reader receives the same bytes: the broker only stamps the
header.

docs/FORMATS.md, "Entry record", shows the layout, with an example that a test reads.

    >>> frame = build_entry(b"keys", b"values", EntryFields(message_count=1, sequence_id=7))
    >>> header = read_header(stamp(frame, 12, 3, append_time_ms=1000, producer_number=0))
    >>> header.ledger_id, header.entry_id, header.sequence_id
    (12, 3, 7)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from ledgerfold.storage.errors import Corruption, IncompatibleFormat

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import MessageId
    from ledgerfold.v1.records_pb2 import Position as PositionRecord

Buffer = bytes | bytearray | memoryview

FORMAT_VERSION = 2
_MAKE_TUPLE = tuple.__new__
# The last fields of a header without dead rows.
NO_DEAD_ROWS = 0, b""
# The prefix of all versions: crc32c | version, codec, compression, flags | ledger, entry |
# publish ms, append ms | sequence id | producer number, message count | key length, key crc |
# value length, value crc. In every version the checksum covers these 72 bytes only: a build that
# does not know a version can distinguish it from damage.
_BASE = struct.Struct("<I4B2q2qq2I4I")
HEADER_BODY = struct.Struct("<4B2q2qq2I4I")
# Version 2 continues with: durable entries | crc32c of everything before it.
HEADER = struct.Struct("<I4B2q2qq2I6I")
_U32 = struct.Struct("<I")
CHECKED_BYTES = HEADER.size - 4
# The size in the version that is written, and the smallest size in any version.
# EntryHeader.header_bytes is the size of a given header.
HEADER_BYTES = HEADER.size
HEADER_BYTES_MIN = _BASE.size
assert (HEADER_BYTES_MIN, HEADER_BYTES) == (72, 80)
# The version of an entry that is served with dead rows; the number and checksum of its bits.
SERVED_VERSION = 3
LIVE_ROWS_BYTES = 8
_DURABLE_ENTRIES_MAX = 2**32 - 1
# The size of a whole entry: bounds one read, one frame and one Spark row.
ENTRY_BYTES_MAX = 16 * 1024 * 1024
# The bytes that a compaction adds to a batch from which it removes messages: for each message's
# index in the batch (batch_indexes), and for the tags and lengths of the new fields.
_REBUILD_MESSAGE_BYTES = 4
_REBUILD_BYTES = 16
# Sent alone, not as a batch (not even of one message): the message id has no batch index.
FLAG_PLAIN = 1


class Codec(IntEnum):
    """The encoding of the sections. On-disk values."""

    NATIVE = 1
    KAFKA = 2
    PULSAR = 3


class Compression(IntEnum):
    """The compression of the value section. On-disk values; numbers of Pulsar's CompressionType."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class Position(NamedTuple):
    """The position of an entry, in order of publication. `entry_id` -1 is before the ledger's
    first.
    """

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    @property
    def next(self) -> Position:
        return Position(self.ledger_id, self.entry_id + 1)


def position_of(record: PositionRecord | MessageId) -> Position:
    return Position(record.ledger_id, record.entry_id)


EARLIEST = Position(-1, -1)
LATEST = Position(2**63 - 1, 2**63 - 1)


class EntryFields(NamedTuple):
    """The fields of an entry's header that the producer sets."""

    message_count: int
    sequence_id: int = 0
    publish_time_ms: int = 0
    codec: int = Codec.NATIVE
    compression: int = Compression.NONE
    flags: int = 0


class EntryHeader(NamedTuple):
    """A decoded header. Times are in ms since the epoch."""

    crc: int
    version: int
    codec: int
    compression: int
    flags: int
    ledger_id: int
    entry_id: int
    publish_time_ms: int
    append_time_ms: int
    # The sequence id of the batch's last message.
    sequence_id: int
    # 0 until the broker stamps it.
    producer_number: int
    message_count: int
    key_bytes: int
    key_crc: int
    value_bytes: int
    value_crc: int
    # The entries of the ledger that were durable when this one was written. 0 in version 1 and in
    # what a producer sends: unknown.
    durable_entries: int = 0
    # The checksum of the whole header; absent in version 1.
    header_crc: int = 0
    # The number of stored rows, and a bit for each live one, if some are dead
    # (storage/served_entry.py).
    stored_rows: int = 0
    live_rows: bytes = b""

    @property
    def rows(self) -> int:
        """The number of rows in the sections."""
        return self.stored_rows or self.message_count

    @property
    def header_bytes(self) -> int:
        if self.live_rows:
            return HEADER_BYTES + LIVE_ROWS_BYTES + len(self.live_rows)
        return HEADER_BYTES if self.version >= FORMAT_VERSION else HEADER_BYTES_MIN

    @property
    def last_durable_entry_id(self) -> int:
        """The last entry of the ledger that was synced when this one was written; -1: unknown.

        BookKeeper's last add confirmed.
        """
        return self.durable_entries - 1

    @property
    def position(self) -> Position:
        # NOTE: without Position's own constructor, which is twice as slow.
        return _MAKE_TUPLE(Position, self[5:7])

    @property
    def size_bytes(self) -> int:
        """The size of the whole entry, header included."""
        return self.header_bytes + self.key_bytes + self.value_bytes

    @property
    def stored_bytes(self) -> int:
        """The size of the whole entry once it is stamped, whichever version it was sent in."""
        return HEADER_BYTES + self.key_bytes + self.value_bytes

    @property
    def is_plain(self) -> bool:
        return bool(self.flags & FLAG_PLAIN)


def entry_bytes_after_rebuild_max(size_bytes: int, messages: int) -> int:
    """Returns the largest size that an entry of this size can have after a compaction removes
    messages.

    Clients split their batches by this size: the broker rejects an entry above its limit, because
    the compacted view must be able to store it, too.

    >>> entry_bytes_after_rebuild_max(1000, 1), entry_bytes_after_rebuild_max(1000, 10)
    (1000, 1056)
    """
    # A single message is retained unchanged, or removed.
    if messages <= 1:
        return size_bytes
    return size_bytes + _REBUILD_MESSAGE_BYTES * messages + _REBUILD_BYTES


def crc32c(data: Buffer) -> int:
    value: int = google_crc32c.value(data if type(data) is bytes else bytes(data))
    return value


def pack_header(body: tuple[int, ...], durable_entries: int) -> bytes:
    """Encodes a header of the version that `body` begins with."""
    packed = HEADER_BODY.pack(*body)
    packed = _U32.pack(google_crc32c.value(packed)) + packed
    if body[0] < FORMAT_VERSION:
        return packed
    packed += _U32.pack(durable_entries)
    return packed + _U32.pack(google_crc32c.value(packed))


def build_entry(key_section: bytes, value_section: bytes, fields: EntryFields) -> bytes:
    """Builds an entry as a producer sends it: without position, append time and producer number."""
    header = pack_header(
        (
            FORMAT_VERSION,
            fields.codec,
            fields.compression,
            fields.flags,
            0,
            0,
            fields.publish_time_ms,
            0,
            fields.sequence_id,
            0,
            fields.message_count,
            len(key_section),
            crc32c(key_section),
            len(value_section),
            crc32c(value_section),
        ),
        0,
    )
    return b"".join((header, key_section, value_section))


def rebuild_header(
    header: EntryHeader, key_section: bytes, value_section: bytes, rows: int
) -> bytes:
    """Returns the header of an entry that retains only `rows` messages; all other fields stay.

    The version stays, too: an older version lacks fields that cannot be reconstructed.
    """
    return pack_header(
        (
            *header[1:11],
            rows,
            len(key_section),
            crc32c(key_section),
            len(value_section),
            crc32c(value_section),
        ),
        header.durable_entries,
    )


def has_header(buffer: Buffer, offset: int) -> bool:
    """Returns whether `buffer` holds all bytes of the header at `offset`, valid or not."""
    remaining = len(buffer) - offset
    if remaining >= HEADER_BYTES:
        return True
    return remaining >= HEADER_BYTES_MIN and buffer[offset + 4] != FORMAT_VERSION


def read_header(buffer: Buffer, offset: int = 0, path: str = "entry") -> EntryHeader:
    """Decodes and verifies the header at `offset`, of any version. `path` is for the error.

    Raises Corruption (also if the header is cut off), IncompatibleFormat.
    """
    if len(buffer) - offset < HEADER_BYTES or buffer[offset + 4] != FORMAT_VERSION:
        return _read_old_header(buffer, offset, path)
    header = _MAKE_TUPLE(EntryHeader, (*HEADER.unpack_from(buffer, offset), *NO_DEAD_ROWS))
    found = google_crc32c.value(bytes(buffer[offset : offset + CHECKED_BYTES]))
    if found != header.header_crc:
        raise Corruption(path, offset, f"header CRC32C {header.header_crc:08x}", f"{found:08x}")
    return header


def _read_old_header(buffer: Buffer, offset: int, path: str) -> EntryHeader:
    """Decodes a header of version 1. Raises the error that describes any other header."""
    remaining = len(buffer) - offset
    if remaining < HEADER_BYTES_MIN:
        raise Corruption(
            path, offset, f"a header of {HEADER_BYTES_MIN} bytes", f"{remaining} bytes"
        )
    header = EntryHeader(*_BASE.unpack_from(buffer, offset))
    found = crc32c(buffer[offset + 4 : offset + HEADER_BYTES_MIN])
    if found != header.crc:
        raise Corruption(path, offset, f"header CRC32C {header.crc:08x}", f"{found:08x}")
    if header.version == FORMAT_VERSION:
        raise Corruption(path, offset, f"a header of {HEADER_BYTES} bytes", f"{remaining} bytes")
    if header.version != 1:
        raise IncompatibleFormat(path, header.version, f"versions 1 to {FORMAT_VERSION}")
    return header


def verify_sections(
    buffer: Buffer,
    header: EntryHeader,
    offset: int = 0,
    path: str = "entry",
    keys_only: bool = False,
) -> tuple[bytes, bytes]:
    """Verifies the sections' checksums. Returns the copies that it makes of the sections.

    Raises Corruption, with the section's own offset.
    """
    keys_at = offset + header.header_bytes
    values_at = keys_at + header.key_bytes
    end = keys_at + header.key_bytes + (0 if keys_only else header.value_bytes)
    if len(buffer) < end:
        raise Corruption(
            path, offset, f"{end - offset} bytes of entry", f"{len(buffer) - offset} bytes"
        )
    keys = bytes(buffer[keys_at:values_at])
    found = crc32c(keys)
    if found != header.key_crc:
        raise Corruption(path, keys_at, f"key section CRC32C {header.key_crc:08x}", f"{found:08x}")
    if keys_only:
        return keys, b""
    values = bytes(buffer[values_at:end])
    found = crc32c(values)
    if found != header.value_crc:
        raise Corruption(
            path, values_at, f"value section CRC32C {header.value_crc:08x}", f"{found:08x}"
        )
    return keys, values


def stamped_header(
    header: EntryHeader,
    ledger_id: int,
    entry_id: int,
    append_time_ms: int,
    producer_number: int,
    durable_entries: int = 0,
) -> bytes:
    """Returns a header of FORMAT_VERSION with the fields that only the broker knows."""
    stamps = [(ledger_id, entry_id, append_time_ms, producer_number)]
    return stamped_headers([header], stamps, durable_entries)[0]


def stamped_headers(
    headers: Iterable[EntryHeader],
    stamps: Iterable[tuple[int, int, int, int]],
    durable_entries: int = 0,
) -> list[bytes]:
    """Returns headers as stamped_header does.

    `stamps`: ledger id, entry id, append time and producer number of each.
    """
    pack, pack_u32, crc = HEADER_BODY.pack, _U32.pack, google_crc32c.value
    # A lower bound stays true.
    durable = pack_u32(min(durable_entries, _DURABLE_ENTRIES_MAX))
    stamped = []
    for header, (ledger_id, entry_id, append_time_ms, producer_number) in zip(
        headers, stamps, strict=True
    ):
        body = pack(
            FORMAT_VERSION,
            *header[2:5],
            ledger_id,
            entry_id,
            header[7],
            append_time_ms,
            header[9],
            producer_number,
            *header[11:16],
        )
        packed = pack_u32(crc(body)) + body + durable
        stamped.append(packed + pack_u32(crc(packed)))
    return stamped


def stamp(
    frame: Buffer,
    ledger_id: int,
    entry_id: int,
    append_time_ms: int,
    producer_number: int,
    durable_entries: int = 0,
) -> bytes:
    """Returns the whole entry, stamped. (The publish path writes stamped_header and the frame's
    rest.)
    """
    header = read_header(frame)
    stamped = stamped_header(
        header, ledger_id, entry_id, append_time_ms, producer_number, durable_entries
    )
    return stamped + bytes(frame[header.header_bytes :])
