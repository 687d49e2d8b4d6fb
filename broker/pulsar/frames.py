"""Frames of Pulsar's binary protocol.

  SIZE | COMMAND SIZE | command [ | 0x0e01 | CRC32C | METADATA SIZE | metadata | payload ]

Sizes are 4 bytes, big-endian, and count what follows them. The checksum is optional; it covers the
rest of the frame from METADATA SIZE on. Frames arrive in pieces. A splitter collects each frame,
and refuses one above its limit as soon as its size is known.

  >>> splitter, frame = Splitter(frame_bytes_max=1000), encode(BaseCommand(type=18))
  >>> splitter.feed(frame[:7]), splitter.feed(frame[7:] + frame[:9])
  ([], [b'\\x00\\x00\\x00\\x02\\x08\\x12'])
  >>> splitter.held
  9

Source: Pulsar's Commands and the reference of its protocol.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeAlias, cast

import google_crc32c
from google.protobuf import message as protobuf
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.storage.errors import InvalidRequest, WrongChecksum
from ledgerfold.storage.pulsar.metadata import parse_metadata
from ledgerfold.v1.pulsar_pb2 import BaseCommand, MessageIdData, MessageMetadata

# The limit of a command without metadata and payload: an acknowledgement of 100,000 messages fits.
COMMAND_BYTES_MAX = 2 * 1024 * 1024
# Metadata, the command and sizes, in addition to the largest payload.
FRAME_MARGIN_BYTES = 64 * 1024
# The request id of what the broker sends without a request of the client.
NO_REQUEST = 2**64 - 1
_SIZE = struct.Struct(">I")
_TWO_SIZES = struct.Struct(">II")
_CHECKED = struct.Struct(">HII")
_CHECKSUM_MAGIC = 0x0E01
_BROKER_METADATA_MAGIC = 0x0E02
# The text fields of each type of command; clients send no lists of texts. NOTE: protobuf returns
# bytes for texts that are not UTF-8.
_TEXTS = {
    field.number: (
        field.name,
        [
            each.name
            for each in field.message_type.fields
            if each.type == each.TYPE_STRING and not each.is_repeated
        ],
    )
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}
# The one message that a command contains.
Content: TypeAlias = protobuf.Message
# The type of a command, which is the number of its field, and the field, by the content's class.
_FIELDS: dict[type[Content], tuple[int, str]] = {
    GetMessageClass(cast(Any, field.message_type)): (field.number, field.name)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


class Frame(NamedTuple):
    """A frame in two parts: the command, and the rest, undecoded."""

    command: BaseCommand
    payload: bytes


class Message(NamedTuple):
    """The payload of a SEND: an entry in Pulsar's format. `section`: its metadata, as sent."""

    metadata: MessageMetadata
    section: bytes
    payload: memoryview


class Splitter:
    """A collector of the frames of one connection. `held`: the bytes of an incomplete frame."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()

    @property
    def held(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the frames that are now complete, without their first size.

        Raises InvalidRequest for one that is too large, or too small to have a command.
        """
        buffer = self._buffer
        buffer += data
        frames, at, end = [], 0, len(buffer)
        while end - at >= 4:
            (size,) = _SIZE.unpack_from(buffer, at)
            if not 4 <= size <= self.frame_bytes_max:
                raise InvalidRequest(
                    f"A frame has {size} bytes; the maximum is {self.frame_bytes_max}."
                )
            if end - at - 4 < size:
                break
            at += 4
            frames.append(bytes(memoryview(buffer)[at : at + size]))
            at += size
        del buffer[:at]
        return frames


def parse(frame: bytes) -> Frame:
    """Parses a frame without its first size. Raises InvalidRequest."""
    (size,) = _SIZE.unpack_from(frame)
    if size > min(len(frame) - 4, COMMAND_BYTES_MAX):
        raise InvalidRequest(f"A command declares {size} bytes; its frame has {len(frame)}.")
    try:
        command = BaseCommand.FromString(frame[4 : 4 + size])
    except DecodeError as error:
        raise InvalidRequest(f"Not a command: {error}.") from error
    field, texts = _TEXTS.get(command.type, ("", ()))
    for name in texts:
        if not isinstance(getattr(getattr(command, field), name), str):
            raise InvalidRequest(f"The field {name} of a command is not UTF-8.")
    return Frame(command, frame[4 + size :])


def parse_message(payload: bytes) -> Message:
    """Parses and verifies the rest of a SEND. Raises InvalidRequest, WrongChecksum."""
    view = memoryview(payload)
    try:
        if _magic(view) == _BROKER_METADATA_MAGIC:
            raise InvalidRequest("Only brokers send broker metadata.")
        if _magic(view) == _CHECKSUM_MAGIC:
            _, checksum, size = _CHECKED.unpack_from(view)
            if google_crc32c.value(payload[6:]) != checksum:
                raise WrongChecksum("The checksum of the message is wrong; send it again.")
            at = _CHECKED.size
        else:
            (size,) = _SIZE.unpack_from(view)
            at = _SIZE.size
    except struct.error as error:
        raise InvalidRequest("The SEND has no metadata.") from error
    if size > len(view) - at:
        raise InvalidRequest(f"The metadata declare {size} bytes; {len(view)} were sent.")
    section = bytes(view[at : at + size])
    return Message(parse_metadata(section), section, view[at + size :])


def _magic(view: memoryview) -> int:
    return int.from_bytes(view[:2], "big")


def command(content: Content) -> BaseCommand:
    """Returns the command with this content."""
    number, name = _FIELDS[type(content)]
    fields: Any = {"type": number, name: content}
    return BaseCommand(**fields)


def encode(command: BaseCommand) -> bytes:
    encoded = command.SerializeToString()
    return _TWO_SIZES.pack(len(encoded) + 4, len(encoded)) + encoded


def encode_with_payload(command: BaseCommand, metadata: bytes, payload: bytes) -> bytes:
    """Encodes a command, a MESSAGE, with an entry, and its checksum."""
    encoded = command.SerializeToString()
    checked = b"".join((_SIZE.pack(len(metadata)), metadata, payload))
    size = 4 + len(encoded) + 6 + len(checked)
    return b"".join(
        (
            _TWO_SIZES.pack(size, len(encoded)),
            encoded,
            _CHECKSUM_MAGIC.to_bytes(2, "big"),
            _SIZE.pack(google_crc32c.value(checked)),
            checked,
        )
    )


def message_id(ledger_id: int, entry_id: int, partition: int = -1) -> MessageIdData:
    if partition < 0:
        return MessageIdData(ledger_id=ledger_id, entry_id=entry_id)
    return MessageIdData(ledger_id=ledger_id, entry_id=entry_id, partition=partition)
