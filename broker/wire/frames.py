"""Bulk messages as raw bytes.

Entries are opaque and large, so the streams that carry them use identity (de)serializers and these
few functions instead of protobuf objects. The wire format is still plain protobuf: any client may
use the generated classes (proto/ledgerfold/v1/data.proto).

  >>> frame = encode_entries([b"one", b"two"])
  >>> [bytes(entry) for entry in entries_of(frame)]
  [b'one', b'two']

Untrusted messages are decoded field by field, never as a whole: a frame of FRAME_BYTES_MAX can
contain millions of empty fields.

Source: the protobuf encoding; a length-delimited field is a tag byte (number << 3 | 2), a varint
length, and bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from functools import lru_cache

from ledgerfold.storage.entry import ENTRY_BYTES_MAX, Buffer
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.varints import read_varint, varint

# The size limit of a message in either direction. Any entry fits, with its metadata.
FRAME_BYTES_MAX = ENTRY_BYTES_MAX + 1024 * 1024

# `entries` of PublishRequest and ReadResponse, `deliveries` of SubscribeResponse.
BULK_FIELD = 2
_LENGTH_DELIMITED = 2
_BULK_TAG = BULK_FIELD << 3 | _LENGTH_DELIMITED
_ENTRY_TAG = 1 << 3 | _LENGTH_DELIMITED  # Delivery.entry
_REDELIVERY_TAG = 2 << 3  # Delivery.redelivery_count, a varint


@lru_cache(4096)
def _entry_head(size_bytes: int) -> bytes:
    return b"%c%b" % (_BULK_TAG, varint(size_bytes))


def encode_entries(entries: Iterable[Buffer]) -> bytes:
    """Encodes a PublishRequest, or a ReadResponse, with `entries`."""
    parts: list[Buffer] = []
    for entry in entries:
        parts += (_entry_head(len(entry)), entry)
    return b"".join(parts)


def encode_deliveries(deliveries: Iterable[tuple[Buffer, int]]) -> Iterator[bytes]:
    """Encodes (entry, redelivery count) pairs in SubscribeResponses of up to FRAME_BYTES_MAX."""
    parts: list[Buffer] = []
    size_bytes = 0
    for entry, redelivery_count in deliveries:
        head = b"%c%b" % (_ENTRY_TAG, varint(len(entry)))
        tail = b"%c%b" % (_REDELIVERY_TAG, varint(redelivery_count)) if redelivery_count else b""
        size = len(head) + len(entry) + len(tail)
        head = b"%c%b%b" % (_BULK_TAG, varint(size), head)
        size = len(head) + len(entry) + len(tail)
        if parts and size_bytes + size > FRAME_BYTES_MAX:
            yield b"".join(parts)
            parts, size_bytes = [], 0
        parts += (head, entry, tail)
        size_bytes += size
    if parts:
        yield b"".join(parts)


def is_bulk(frame: Buffer) -> bool:
    """Returns whether the message begins with the bulk field: then it has no other field."""
    return len(frame) > 0 and frame[0] == _BULK_TAG


def _fields(view: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yields number and value of each field. Raises InvalidRequest for an invalid one."""
    at, end = 0, len(view)
    while at < end:
        try:
            tag, at = read_varint(view, at)
            kind = tag & 7
            size, at = read_varint(view, at)
        except IndexError as error:
            raise InvalidRequest("Invalid frame: it ends within a varint.") from error
        except ValueError as error:
            raise InvalidRequest("Invalid frame: a varint is too long.") from error
        if kind == 0:
            yield tag >> 3, size
            continue
        if kind != _LENGTH_DELIMITED:
            raise InvalidRequest(f"Invalid frame: unknown wire type {kind}.")
        if at + size > end:
            raise InvalidRequest("Invalid frame: it ends within a field.")
        yield tag >> 3, view[at : at + size]
        at += size


def entries_of(frame: bytes) -> Iterator[Buffer]:
    """Yields the bulk field's values from a frame that has no other fields.

    Small values at its beginning are copies, others are slices. Raises InvalidRequest when it meets
    another field.
    """
    at = yield from _small_entries(frame)
    for number, value in _fields(memoryview(frame)[at:]):
        if number != BULK_FIELD or isinstance(value, int):
            raise InvalidRequest(f"Invalid frame of entries: it has field {number}.")
        yield value


def received_entries(frame: bytes) -> Iterator[Buffer]:
    """Yields the bulk field's values from a broker's message, as entries_of does; other fields are
    ignored.
    """
    at = yield from _small_entries(frame)
    for number, value in _fields(memoryview(frame)[at:]):
        if number == BULK_FIELD and isinstance(value, memoryview):
            yield value


def _small_entries(frame: bytes) -> Generator[bytes, None, int]:
    """Yields the values at the beginning that have a length of one or two bytes. Returns the offset
    of the rest.
    """
    at, end = 0, len(frame)
    # NOTE: the usual case of many small entries, without generic decoding: their tag, and a length
    # of one or two bytes.
    while at + 2 < end and frame[at] == _BULK_TAG:
        size, start = frame[at + 1], at + 2
        if size > 0x7F:
            if frame[start] > 0x7F:
                break
            size, start = size & 0x7F | frame[start] << 7, at + 3
        if start + size > end:
            break
        at = start + size
        yield frame[start:at]
    return at


def decode_field(frame: Buffer, number: int) -> list[memoryview]:
    """Returns all values of one length-delimited field of a broker's message, as slices.

    Raises InvalidRequest.
    """
    return [
        value
        for field, value in _fields(memoryview(frame))
        if field == number and isinstance(value, memoryview)
    ]


def decode_deliveries(frame: Buffer) -> list[tuple[memoryview, int]]:
    """Returns the (entry, redelivery count) pairs of a SubscribeResponse. Raises InvalidRequest."""
    deliveries = []
    for delivery in decode_field(frame, BULK_FIELD):
        entry, redelivery_count = memoryview(b""), 0
        for number, value in _fields(delivery):
            if number == 1 and isinstance(value, memoryview):
                entry = value
            elif number == 2 and isinstance(value, int):
                redelivery_count = value
        deliveries.append((entry, redelivery_count))
    return deliveries
