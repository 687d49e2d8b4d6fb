"""Many entries of one message each: built as by NativeBatchBuilder, and read back.

A producer that does not batch sends an entry for each message. Building and reading them together,
by templates for each size of key and value, takes a fifth of the time.

    >>> from ledgerfold.storage.native import NativeBatchBuilder
    >>> builder = NativeBatchBuilder("p")
    >>> builder.add(b"v", b"k")
    >>> whole = builder.build(sequence_id=7, publish_time_ms=1, plain=True)
    >>> plain_entries(["k"], [b"v"], 7, 1, "p") == [whole]
    True
    >>> (rows,) = plain_rows([whole, whole], rows_max=10)
    >>> rows.keys, rows.values
    ([b'k', b'k'], [b'v', b'v'])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from struct import Struct
from typing import NamedTuple

import google_crc32c

from ledgerfold.storage.decoded import key_bytes
from ledgerfold.storage.entry import (
    CHECKED_BYTES,
    FLAG_PLAIN,
    FORMAT_VERSION,
    HEADER,
    HEADER_BODY,
    HEADER_BYTES,
    Buffer,
    Codec,
    Compression,
    Position,
)
from ledgerfold.v1.entry_pb2 import NATIVE_FLAG_HAS_KEY, NativeKeys, NativeValues

_U32, _TWO_U32, _POSITION = Struct("<I"), Struct("<2I"), Struct("<2q")
# Parts of a header: version, codec, compression and flags of the usual entry; ledger id and entry
# id.
_USUAL = bytes((FORMAT_VERSION, Codec.NATIVE, Compression.NONE, FLAG_PLAIN))
_POSITION_AT = 8
# In a key section: the end of the key (the second of `key_offsets`), and the flags.
_KEY_SIZE_AT, _FLAGS_AT = 6, -7
_KEY_SECTION_MIN = 19
HAS_KEY = int(NATIVE_FLAG_HAS_KEY)
# Larger messages do not use templates, because their sizes rarely recur.
_SIZES_KEPT = 4096


def plain_entries(
    keys: Sequence[bytes | str],
    values: Sequence[bytes],
    first_sequence_id: int,
    publish_time_ms: int,
    producer_name: str,
) -> list[bytes]:
    """Builds an uncompressed entry, which is not a batch, of each key and value.

    Sequence ids rise by one.
    """
    pack, pack_u32, crc = HEADER_BODY.pack, _U32.pack, google_crc32c.value
    version, codec, none, flags = (
        FORMAT_VERSION,
        Codec.NATIVE.value,
        Compression.NONE.value,
        FLAG_PLAIN,
    )
    tail = NativeValues(producer_name=producer_name).SerializeToString()
    built = []
    for key, value, sequence_id in zip(keys, values, count(first_sequence_id)):
        encoded = key.encode() if type(key) is str and key.isascii() else key_bytes(key)
        before, after = _around_key(len(encoded), len(value), HAS_KEY)
        key_section = before + encoded + after
        value_section = _before_value(len(value)) + value + tail
        body = pack(
            version,
            codec,
            none,
            flags,
            0,
            0,
            publish_time_ms,
            0,
            sequence_id,
            0,
            1,
            len(key_section),
            crc(key_section),
            len(value_section),
            crc(value_section),
        )
        # The producer does not know of any durable entry.
        checked = pack_u32(crc(body)) + body + b"\0\0\0\0"
        built.append(checked + pack_u32(crc(checked)) + key_section + value_section)
    return built


class PlainRows(NamedTuple):
    """Undamaged entries of one message each, in order, with their contents.

    A key is None for a message without one; a value is empty for a null value.
    """

    entries: list[bytes]
    keys: list[bytes | None]
    values: list[bytes]

    @property
    def last(self) -> Position:
        return self.position(-1)

    def position(self, row: int) -> Position:
        return Position._make(_POSITION.unpack_from(self.entries[row], _POSITION_AT))


def plain_rows(entries: Iterable[Buffer], rows_max: int) -> Iterator[PlainRows | Buffer]:
    """Groups adjacent entries of the form that plain_entries builds; yields other entries, also
    damaged ones, unchanged.

    The caller handles those. Entries of one message may have other forms: with an event time, for
    example, or compressed.
    """
    unpack, crc = HEADER.unpack_from, google_crc32c.value
    rows = PlainRows([], [], [])
    for entry in entries:
        if type(entry) is not bytes or len(entry) < HEADER_BYTES or entry[4:8] != _USUAL:
            if rows.entries:
                yield rows
                rows = PlainRows([], [], [])
            yield entry
            continue
        fields = unpack(entry)
        values_at = HEADER_BYTES + fields[12]
        key_section, value_section = entry[HEADER_BYTES:values_at], entry[values_at:]
        row = None
        if (
            len(key_section) >= _KEY_SECTION_MIN
            and len(value_section) == fields[14]
            and crc(key_section) == fields[13]
            and crc(value_section) == fields[15]
            and crc(entry[:CHECKED_BYTES]) == fields[17]
            and fields[11] == 1
        ):
            row = _row_of(key_section, value_section)
        if row is None or len(rows.entries) >= rows_max:
            if rows.entries:
                yield rows
                rows = PlainRows([], [], [])
            if row is None:
                yield entry
                continue
        rows.entries.append(entry)
        rows.keys.append(row[0])
        rows.values.append(row[1])
    if rows.entries:
        yield rows


def _row_of(key_section: bytes, value_section: bytes) -> tuple[bytes | None, bytes] | None:
    """Returns the key and the value; None if the sections have another form."""
    (key_bytes,) = _U32.unpack_from(key_section, _KEY_SIZE_AT)
    (value_bytes,) = _U32.unpack_from(key_section, len(key_section) - 4)
    flags = key_section[_FLAGS_AT]
    if key_bytes > len(key_section) or value_bytes > len(value_section):
        return None
    before, after = _around_key(key_bytes, value_bytes, flags)
    key_at, value_head = len(before), _before_value(value_bytes)
    end = key_at + key_bytes
    if not (
        key_section.startswith(before)
        and key_section[end:] == after
        and value_section.startswith(value_head)
    ):
        return None
    value_at = len(value_head)
    value = value_section[value_at : value_at + value_bytes]
    return (key_section[key_at:end] if flags & HAS_KEY else None), value


@lru_cache(_SIZES_KEPT)
def _around_key(key_bytes: int, value_bytes: int, flags: int) -> tuple[bytes, bytes]:
    """Returns what is before and after the key in a key section of these sizes and flags."""
    after = NativeKeys(
        flags=bytes((flags,)), value_sizes=_U32.pack(value_bytes)
    ).SerializeToString()
    offsets = NativeKeys(key_offsets=_TWO_U32.pack(0, key_bytes)).SerializeToString()
    if not key_bytes:
        return offsets, after
    key = NativeKeys(keys=bytes(key_bytes)).SerializeToString()
    return offsets + key[:-key_bytes], after


@lru_cache(_SIZES_KEPT)
def _before_value(value_bytes: int) -> bytes:
    """Returns what is before the value in a value section of that size."""
    if not value_bytes:
        return b""
    return NativeValues(values=bytes(value_bytes)).SerializeToString()[:-value_bytes]
