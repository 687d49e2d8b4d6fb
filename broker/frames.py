"""Bulk messages as raw bytes.

Entries are opaque and large, so the streams that carry them use identity (de)serialisers and these
few functions instead of building protobuf objects. What is on the wire stays plain protobuf: any
client may use the generated classes (proto/ledgerfold/v1/data.proto).

    >>> frame = encode_publish([b"one", b"two"])
    >>> [bytes(entry) for entry in decode_field(frame, 2)]
    [b'one', b'two']

Source: the protobuf encoding; a length-delimited field is a tag byte (number << 3 | 2), a varint
length, and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from storage.entry import Buffer
from storage.errors import InvalidRequest

# `entries` of PublishRequest and ReadResponse, `deliveries` of SubscribeResponse.
BULK_FIELD = 2
_LENGTH_DELIMITED = 2
_BULK_TAG = BULK_FIELD << 3 | _LENGTH_DELIMITED
_ENTRY_TAG = 1 << 3 | _LENGTH_DELIMITED  # Delivery.entry
_REDELIVERY_TAG = 2 << 3  # Delivery.redelivery_count, a varint


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _encode_entries(entries: Iterable[Buffer]) -> bytes:
    parts: list[Buffer] = []
    for entry in entries:
        parts.append(b"%c%b" % (_BULK_TAG, _varint(len(entry))))
        parts.append(entry)
    return b"".join(parts)


def encode_publish(entries: Iterable[Buffer]) -> bytes:
    """A PublishRequest that holds `entries`."""
    return _encode_entries(entries)


def encode_read(entries: Iterable[Buffer]) -> bytes:
    """A ReadResponse that holds `entries`."""
    return _encode_entries(entries)


def encode_deliveries(deliveries: Sequence[tuple[Buffer, int]]) -> bytes:
    """A SubscribeResponse of (entry, redelivery count) pairs."""
    parts: list[Buffer] = []
    for entry, redelivery_count in deliveries:
        head = b"%c%b" % (_ENTRY_TAG, _varint(len(entry)))
        tail = b"%c%b" % (_REDELIVERY_TAG, _varint(redelivery_count)) if redelivery_count else b""
        size = len(head) + len(entry) + len(tail)
        parts += (b"%c%b%b" % (_BULK_TAG, _varint(size), head), entry, tail)
    return b"".join(parts)


def is_bulk(frame: Buffer) -> bool:
    """Whether the message begins with the bulk field: then it holds nothing else worth parsing."""
    return len(frame) > 0 and frame[0] == _BULK_TAG


def _read_varint(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise InvalidRequest("A frame with an endless number.")


def _fields(view: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    at, end = 0, len(view)
    while at < end:
        tag, at = _read_varint(view, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(view, at)
            yield tag >> 3, value
            continue
        if kind != _LENGTH_DELIMITED:
            raise InvalidRequest(f"A frame with a field of unknown wire type {kind}.")
        size, at = _read_varint(view, at)
        if at + size > end:
            raise InvalidRequest("A frame that ends in the middle of a field.")
        yield tag >> 3, view[at : at + size]
        at += size


def decode_field(frame: Buffer, number: int) -> list[memoryview]:
    """All values of one length-delimited field, as slices of the frame. Raises InvalidRequest."""
    try:
        return [
            value
            for field, value in _fields(memoryview(frame))
            if field == number and isinstance(value, memoryview)
        ]
    except IndexError as error:
        raise InvalidRequest("A frame that ends in the middle of a number.") from error


def decode_deliveries(frame: Buffer) -> list[tuple[memoryview, int]]:
    """The (entry, redelivery count) pairs of a SubscribeResponse. Raises InvalidRequest."""
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
