"""The key section of a Pulsar entry: the MessageMetadata that its producer sent.

Changes preserve all other fields, also unknown ones: protobuf reads the section, but fields are
replaced in its bytes.

    >>> metadata = MessageMetadata(producer_name=b"p", sequence_id=7, publish_time=5)
    >>> section = metadata.SerializeToString() + b"\\xc2\\x3e\\x01x"
    >>> parse_metadata(replaced(section, {9: 300})).uncompressed_size
    300
    >>> replaced(section, {9: 300}).startswith(section)
    True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from google.protobuf.message import DecodeError

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.varints import read_varint, varint
from ledgerfold.v1.pulsar_pb2 import MessageMetadata

# Numbers of fields.
PROPERTIES, PARTITION_KEY, COMPRESSION, UNCOMPRESSED_SIZE = 4, 6, 8, 9
NUM_MESSAGES_IN_BATCH, EVENT_TIME = 11, 12
KEY_IS_BASE64, ORDERING_KEY, HIGHEST_SEQUENCE_ID, NULL_VALUE = 17, 18, 24, 25
SEQUENCE_ID, COMPACTED_BATCH_INDEXES = 2, 31
_VARINT, _FIXED64, _LENGTH, _GROUP, _END_OF_GROUP, _FIXED32 = range(6)


def parse_metadata(section: Buffer) -> MessageMetadata:
    """Parses a key section. Raises InvalidRequest."""
    try:
        return MessageMetadata.FromString(bytes(section))
    except DecodeError as error:
        raise InvalidRequest(f"Not a message's metadata: {error}.") from error


def is_batch(metadata: MessageMetadata) -> bool:
    """Returns whether the payload is a batch, even of one message."""
    return metadata.HasField("num_messages_in_batch")


def is_sealed(metadata: MessageMetadata) -> bool:
    """Returns whether the payload is an encrypted batch, which is one message for readers without
    the key.
    """
    return bool(metadata.encryption_keys) and is_batch(metadata)


def indexes_of(metadata: MessageMetadata, rows: int) -> list[int] | range:
    """Returns the batch index of each stored row. Raises InvalidRequest."""
    size = metadata.num_messages_in_batch
    if rows == size:
        return range(size)
    indexes = list(metadata.compacted_batch_indexes)
    if len(indexes) != rows or indexes[0] < 0 or indexes[-1] >= size or _falls(indexes):
        raise InvalidRequest(
            f"The metadata count {rows} messages of a batch of {size}, without valid indexes."
        )
    return indexes


def _falls(indexes: list[int]) -> bool:
    return any(after <= before for before, after in pairwise(indexes))


def replaced(section: bytes, fields: Mapping[int, int | bytes | list[bytes] | None]) -> bytes:
    """Returns the section with these fields replaced, or removed where None; all other bytes stay.

    Raises InvalidRequest.
    """
    try:
        fields_kept = [
            section[start:end] for number, start, end in _fields(section) if number not in fields
        ]
    except (IndexError, ValueError) as error:
        raise InvalidRequest("A number in metadata is cut off.") from error
    for number, value in fields.items():
        if isinstance(value, int):
            fields_kept += (varint(number << 3 | _VARINT), varint(value))
        elif value is not None:
            for each in value if isinstance(value, list) else [value]:
                fields_kept += (varint(number << 3 | _LENGTH), varint(len(each)), each)
    return b"".join(fields_kept)


def _fields(section: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields the number, start and end of each field. A group is one field, regardless of its
    contents.

    Accepts the same input as protobuf. Raises InvalidRequest, and as read_varint().
    """
    start = at = 0
    end, groups = len(section), list[int]()
    while at < end:
        tag, at = read_varint(section, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, at = read_varint(section, at)
        elif kind == _LENGTH:
            size, at = read_varint(section, at)
            at += size
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        elif kind == _GROUP:
            groups.append(number)
        elif kind != _END_OF_GROUP or not groups or groups.pop() != number:
            raise InvalidRequest(f"The metadata have a field of unknown wire type {kind}.")
        if at > end:
            raise InvalidRequest("A field of metadata is cut off.")
        if not groups:
            yield number, start, at
            start = at
    if groups:
        raise InvalidRequest("A group in metadata is cut off.")
