"""Codecs: how the sections of an entry are read.

Storage, and the broker's publish and read paths, handle entries whole. What must look inside (a
client, a command that prints messages, key-shared dispatch) asks the codec that the header names.

    >>> from ledgerfold.storage.native import NativeBatchBuilder
    >>> builder = NativeBatchBuilder("p")
    >>> builder.add(b"v", key=b"k")
    >>> [m.key for m in decode(builder.build(sequence_id=0, publish_time_ms=1)).messages()]
    [b'k']
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ledgerfold.storage.decoded import DecodedBatch, EntryCodec
from ledgerfold.storage.entry import Buffer, Codec, EntryHeader, read_header
from ledgerfold.storage.errors import Corruption, InvalidRequest, KafkaError
from ledgerfold.storage.kafka.entries import KAFKA
from ledgerfold.storage.native_batch import NATIVE


def codec_of(header: EntryHeader) -> EntryCodec:
    if header.codec == Codec.NATIVE:
        return NATIVE
    if header.codec == Codec.KAFKA:
        return KAFKA
    raise InvalidRequest(f"Unknown entry codec {header.codec}.")


def decode(entry: Buffer, header: EntryHeader | None = None) -> DecodedBatch:
    """The messages of a whole entry. Checksums of the sections are the caller's business."""
    header = header or read_header(entry)
    view = memoryview(entry)
    keys_at = header.header_bytes
    values_at = keys_at + header.key_bytes
    return codec_of(header).decode(
        header, view[keys_at:values_at], view[values_at : values_at + header.value_bytes]
    )


def last_batch_index(entry: Buffer, header: EntryHeader) -> int:
    """Of a whole entry's last message, whose values nobody looks at. Raises InvalidRequest."""
    keys = memoryview(entry)[header.header_bytes : header.header_bytes + header.key_bytes]
    return codec_of(header).last_batch_index(header, keys)


@contextmanager
def decoding(path: str, offset: int = 0) -> Iterator[None]:
    """Around the decoding of an entry that was stored: what does not decode is damaged.

    Raises Corruption. (Of an entry that a client is about to publish, it is the client's mistake.)
    """
    try:
        yield
    except (InvalidRequest, KafkaError) as error:
        raise Corruption(path, offset, "an entry that decodes", error.message) from error
