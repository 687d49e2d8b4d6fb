"""Codecs, which interpret the sections of an entry.

Storage, and the broker's publish and read paths, handle whole entries. Code that must look inside
(a client, a command that prints messages, key-shared dispatch) uses the codec that the header
names.

    >>> from ledgerfold.storage.native import NativeBatchBuilder
    >>> builder = NativeBatchBuilder("p")
    >>> builder.add(b"v", key=b"k")
    >>> [m.key for m in decode(builder.build(sequence_id=0, publish_time_ms=1)).messages()]
    [b'k']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ledgerfold.storage.decoded import DecodedBatch, Routing
from ledgerfold.storage.entry import Buffer, Codec, EntryHeader, read_header
from ledgerfold.storage.errors import Corruption, IncompatibleFormat, InvalidRequest, KafkaError
from ledgerfold.storage.kafka.entries import KafkaBatch
from ledgerfold.storage.native_batch import NativeBatch
from ledgerfold.storage.pulsar.batch import PulsarBatch
from ledgerfold.storage.served_entry import read_served_header

# The position of the codec in a header of any version.
_CODEC_AT = 5


def unknown_codec(header: EntryHeader) -> IncompatibleFormat:
    """Returns the error for an entry that a later build wrote."""
    known = f"versions 1 to {max(Codec)}"
    return IncompatibleFormat(f"the codec of entry {header.position}", header.codec, known)


def codec_of(header: EntryHeader) -> type[DecodedBatch]:
    if header.codec == Codec.NATIVE:
        return NativeBatch
    if header.codec == Codec.KAFKA:
        return KafkaBatch
    if header.codec == Codec.PULSAR:
        return PulsarBatch
    raise unknown_codec(header)


def decode(entry: Buffer, header: EntryHeader | None = None) -> DecodedBatch:
    """Returns the messages of a whole entry. The caller verifies the sections' checksums."""
    header = header or read_header(entry)
    view = memoryview(entry)
    keys_at = header.header_bytes
    values_at = keys_at + header.key_bytes
    return codec_of(header)(
        header, view[keys_at:values_at], view[values_at : values_at + header.value_bytes]
    )


def routing_of(entry: Buffer, header: EntryHeader) -> Routing:
    """Returns what dispatch needs of an entry, without values. Raises InvalidRequest."""
    keys = memoryview(entry)[header.header_bytes : header.header_bytes + header.key_bytes]
    return codec_of(header).routing(header, keys)


def last_batch_index(entry: Buffer, header: EntryHeader) -> int:
    """Returns the last message's batch index, without values. Raises InvalidRequest."""
    keys = memoryview(entry)[header.header_bytes : header.header_bytes + header.key_bytes]
    return codec_of(header).last_batch_index(header, keys)


def check_readable(entries: Iterable[Buffer]) -> None:
    """Raises IncompatibleFormat for a Pulsar entry, which a client of the first version would
    report as damage.
    """
    for entry in entries:
        if entry[_CODEC_AT] == Codec.PULSAR:
            what = f"the codec of entry {read_served_header(entry).position}"
            raise IncompatibleFormat(what, Codec.PULSAR, "versions 1 and 2")


@contextmanager
def decoding(path: str, offset: int = 0) -> Iterator[None]:
    """Raises Corruption if the body cannot decode a stored entry.

    Entries that a client is about to publish are not wrapped: there, the client is at fault.
    """
    try:
        yield
    except (InvalidRequest, KafkaError) as error:
        raise Corruption(path, offset, "an entry that decodes", error.message) from error
