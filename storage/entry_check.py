"""Checks of whole entries: those that come from outside, and those that are read from a file.

>>> from ledgerfold.storage.entry import EntryFields, build_entry
>>> check_entry(build_entry(b"keys", b"values", EntryFields(1, sequence_id=7))).sequence_id
7
"""

from __future__ import annotations

import google_crc32c

from ledgerfold.storage.entry import (
    CHECKED_BYTES,
    ENTRY_BYTES_MAX,
    FORMAT_VERSION,
    HEADER,
    HEADER_BYTES,
    NO_DEAD_ROWS,
    Buffer,
    Codec,
    Compression,
    EntryHeader,
    entry_bytes_after_rebuild_max,
    read_header,
    verify_sections,
)
from ledgerfold.storage.errors import (
    Corruption,
    IncompatibleFormat,
    InvalidRequest,
    MessageTooLarge,
)

_MAKE_TUPLE = tuple.__new__
_CODECS, _COMPRESSIONS = frozenset(Codec), frozenset(Compression)


def read_entry(buffer: Buffer, offset: int) -> tuple[EntryHeader, bytes] | None:
    """Returns the header and a copy of the entry at `offset`, if it is whole, undamaged, and of the
    present version.

    Otherwise returns None: read_header and verify_sections then report the error.
    """
    if len(buffer) - offset < HEADER_BYTES:
        return None
    header = _MAKE_TUPLE(EntryHeader, (*HEADER.unpack_from(buffer, offset), *NO_DEAD_ROWS))
    values_at = HEADER_BYTES + header.key_bytes
    size_bytes = values_at + header.value_bytes
    data = bytes(buffer[offset : offset + size_bytes])
    if (
        header.version == FORMAT_VERSION
        and len(data) == size_bytes
        and google_crc32c.value(data[:CHECKED_BYTES]) == header.header_crc
        and google_crc32c.value(data[HEADER_BYTES:values_at]) == header.key_crc
        and google_crc32c.value(data[values_at:]) == header.value_crc
    ):
        return header, data
    return None


def check_entry(frame: Buffer, bytes_max: int = ENTRY_BYTES_MAX) -> EntryHeader:
    """Verifies an entry from outside: complete, undamaged, within bounds.

    `bytes_max` also bounds its size after a compaction removes messages. Raises InvalidRequest,
    MessageTooLarge.
    """
    if type(frame) is bytes and len(frame) <= bytes_max:
        # NOTE: the usual case, small entries, in a third of the time; checked_entry handles all
        # others, and all errors.
        parsed = read_entry(frame, 0)
        if parsed is not None:
            header, entry = parsed
            if (
                len(entry) == len(frame)
                and header.message_count == 1
                and header.codec in _CODECS
                and header.compression in _COMPRESSIONS
            ):
                return header
    return checked_entry(frame, bytes_max)[0]


def checked_entry(
    frame: Buffer, bytes_max: int = ENTRY_BYTES_MAX
) -> tuple[EntryHeader, bytes, bytes]:
    """Verifies an entry as check_entry does. Also returns copies of its sections."""
    try:
        header = read_header(frame)
        if header.size_bytes != len(frame):
            raise InvalidRequest(
                f"The entry's header declares {header.size_bytes} bytes; {len(frame)} were sent."
            )
        keys, values = verify_sections(frame, header)
    except (Corruption, IncompatibleFormat) as error:
        raise InvalidRequest(f"Not an entry: {error}") from error
    largest = entry_bytes_after_rebuild_max(header.stored_bytes, header.message_count)
    if largest > bytes_max:
        raise MessageTooLarge(header.stored_bytes, header.message_count, largest, bytes_max)
    if header.message_count < 1:
        raise InvalidRequest("The entry has no messages. Send at least one.")
    if header.codec not in Codec._value2member_map_:
        raise InvalidRequest(f"Unknown entry codec {header.codec}.")
    if header.compression not in Compression._value2member_map_:
        raise InvalidRequest(f"Unknown compression {header.compression}.")
    return header, keys, values
