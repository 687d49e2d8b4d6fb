"""An entry as it is served when some of its messages are dead (docs/FORMATS.md, "Served entry").

A deletion vector (storage/deletion_vector.py) lists messages of a stored entry that its ledger does
not contain. The broker omits them without decoding: it serves the stored sections after a header of
version 3, which says which rows are live. A client that does not know this version refuses the
entry. It is never stored, and never published.

    >>> from ledgerfold.storage.native import NativeBatchBuilder
    >>> builder = NativeBatchBuilder("p")
    >>> for value in (b"a", b"b", b"c"):
    ...     builder.add(value)
    >>> entry = builder.build(sequence_id=2, publish_time_ms=1)
    >>> header, served = with_live_rows(read_header(entry), entry, bytes([0b101]))
    >>> header.message_count, read_served_header(served) == header
    (2, True)
"""

from __future__ import annotations

from ledgerfold.storage.entry import (
    HEADER,
    HEADER_BYTES,
    LIVE_ROWS_BYTES,
    SERVED_VERSION,
    Buffer,
    EntryHeader,
    crc32c,
    pack_header,
    read_header,
)
from ledgerfold.storage.errors import Corruption

_VERSION_AT = 4


def live_header(header: EntryHeader, live_rows: bytes) -> EntryHeader:
    """Returns the header that serves an entry of which only these rows are live."""
    return _packed(header, live_rows)[0]


def with_live_rows(
    header: EntryHeader, entry: Buffer, live_rows: bytes
) -> tuple[EntryHeader, bytes]:
    """Returns the served header and entry. `live_rows`: a bit for each stored row."""
    served, packed = _packed(header, live_rows)
    return served, packed + memoryview(entry)[header.header_bytes :]


def _packed(header: EntryHeader, live_rows: bytes) -> tuple[EntryHeader, bytes]:
    messages = live_rows_in(live_rows)
    body = (SERVED_VERSION, *header[2:11], messages, *header[12:16])
    packed = pack_header(body, header.durable_entries)
    rows = header.rows.to_bytes(4, "little") + live_rows
    packed += rows + crc32c(rows).to_bytes(4, "little")
    return _decoded(packed, header.rows, live_rows), packed


def live_rows_in(live_rows: bytes) -> int:
    """Returns the number of live rows.

    >>> live_rows_in(bytes([0b101, 1]))
    3
    """
    return int.from_bytes(live_rows, "little").bit_count()


def row_numbers(live_rows: bytes, rows: int) -> list[int]:
    """Returns the live ones among so many rows, ascending.

    >>> row_numbers(bytes([0b101, 1]), 9)
    [0, 2, 8]
    """
    return [row for row in range(rows) if live_rows[row >> 3] >> (row & 7) & 1]


def read_served_header(buffer: Buffer) -> EntryHeader:
    """Decodes and verifies the header of an entry from a broker, stored or served.

    Raises Corruption, IncompatibleFormat.
    """
    if len(buffer) < HEADER_BYTES + LIVE_ROWS_BYTES or buffer[_VERSION_AT] != SERVED_VERSION:
        return read_header(buffer)
    base = _decoded(buffer, 0, b"")
    for crc, found in (
        (base.crc, crc32c(buffer[4 : HEADER_BYTES - 8])),
        (base.header_crc, crc32c(buffer[: HEADER_BYTES - 4])),
    ):
        if crc != found:
            raise Corruption("entry", 0, f"header CRC32C {crc:08x}", f"{found:08x}")
    rows = int.from_bytes(buffer[HEADER_BYTES : HEADER_BYTES + 4], "little")
    end = HEADER_BYTES + 4 + (rows + 7) // 8
    if len(buffer) < end + 4:
        raise Corruption("entry", HEADER_BYTES, f"{rows} bits of live rows", f"{len(buffer)} bytes")
    crc, found = int.from_bytes(buffer[end : end + 4], "little"), crc32c(buffer[HEADER_BYTES:end])
    if crc != found:
        raise Corruption("entry", HEADER_BYTES, f"live rows CRC32C {crc:08x}", f"{found:08x}")
    live_rows = bytes(buffer[HEADER_BYTES + 4 : end])
    if live_rows_in(live_rows) != base.message_count or not base.message_count:
        found_rows = f"{live_rows_in(live_rows)} live rows"
        raise Corruption("entry", HEADER_BYTES, f"{base.message_count} live rows", found_rows)
    return base._replace(stored_rows=rows, live_rows=live_rows)


def _decoded(buffer: Buffer, rows: int, live_rows: bytes) -> EntryHeader:
    header = EntryHeader(*HEADER.unpack_from(buffer))
    return header._replace(stored_rows=rows, live_rows=live_rows)
