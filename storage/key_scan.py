"""A scan of a segment's keys, without its values.

Reads each header with its key section, in blocks, and skips values larger than a block. The value
section of a Pulsar batch is read as well, because it contains the keys. Headers, key sections and
rising entry ids are verified; damage is an error.

    >>> from ledgerfold.storage.entry import stamp
    >>> from ledgerfold.storage.native import NativeBatchBuilder
    >>> builder = NativeBatchBuilder("p")
    >>> builder.add(b"10", key=b"p3")
    >>> entry = builder.build(sequence_id=0, publish_time_ms=1)
    >>> file = stamp(entry, 7, 0, append_time_ms=1, producer_number=1)
    >>> first = {"ledger_id": 7, "entry_id": 0}
    >>> segment = SegmentRecord(size_bytes=len(file), entries=1, first=first, last=first)
    >>> for header, keys in scan_keys(lambda size, offset: file[offset : offset + size], segment):
    ...     for version in versions_of(header, keys, b"p3"):
    ...         print(version.position, version.value_bytes)
    7:0 2

Bounds: one block, or one key section if that is larger; or one Pulsar batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ledgerfold.storage.codec import codec_of, decoding
from ledgerfold.storage.entry import (
    HEADER_BYTES,
    Buffer,
    Codec,
    EntryHeader,
    Position,
    read_header,
    verify_sections,
)
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.file_window import Window
from ledgerfold.storage.message_ids import id_text
from ledgerfold.storage.pulsar.batch import PulsarBatch, is_unsized
from ledgerfold.storage.segment import shifted
from ledgerfold.v1.records_pb2 import MessageId, SegmentRecord

BLOCK_BYTES = 256 * 1024
# The read size where only one header and a short key section are needed.
HOP_BYTES = 4096


class KeyVersion(NamedTuple):
    """A message as its key section describes it, and its location. `batch_index` -1: published
    alone.

    `is_unreadable`: it stands for a batch that does not parse. `in_raw`, `in_compacted`: whether a
    raw ledger or the compacted one holds it, if that was determined.

    >>> version = KeyVersion(Position(3, 4), 1, 5, 0, 0, False, in_raw=True)
    >>> version.name, version.is_tombstone, version.is_alone
    ('3:4:-1:1', True, False)
    """

    position: Position
    batch_index: int
    publish_time_ms: int
    # 0 when not set.
    event_time_ms: int
    # 0 is a tombstone, if the message has a key.
    value_bytes: int
    key_is_base64: bool
    is_unreadable: bool = False
    in_raw: bool = False
    in_compacted: bool = False
    partition: int = -1

    @property
    def is_tombstone(self) -> bool:
        return self.value_bytes == 0

    @property
    def is_alone(self) -> bool:
        """True if it was published alone, not in a batch."""
        return self.batch_index < 0

    @property
    def identity(self) -> tuple[Position, int]:
        return self[:2]

    @property
    def name(self) -> str:
        """The id, as commands accept it."""
        return id_text(*self.position, self.partition, self.batch_index)

    @property
    def message_id(self) -> MessageId:
        ledger_id, entry_id = self.position
        return MessageId(
            ledger_id=ledger_id,
            entry_id=entry_id,
            batch_index=self.batch_index,
            partition=self.partition,
        )


def scan_keys(
    pread: Callable[[int, int], Buffer], segment: SegmentRecord
) -> Iterator[tuple[EntryHeader, memoryview]]:
    """Yields the header and key section of each entry of `segment`, in order.

    Of a Pulsar batch, both sections. They are valid until the next ones are yielded. Raises
    Corruption.
    """
    window = Window(pread, segment.size_bytes)
    offset, last, read_bytes = 0, Position(-1, -1), BLOCK_BYTES
    while offset < segment.size_bytes:
        try:
            at = window.index(offset, HEADER_BYTES, read_bytes)
            header = read_header(window.view, at, segment.path)
            size = header.header_bytes + header.key_bytes
            has_keys_in_values = header.codec == Codec.PULSAR and not header.is_plain
            if has_keys_in_values:
                size += header.value_bytes
            at = window.index(offset, size, read_bytes)
            keys_only = not has_keys_in_values
            verify_sections(window.view, header, at, segment.path, keys_only=keys_only)
        except Corruption as error:
            raise shifted(error, window.base) from error
        if header.position <= last or offset + header.size_bytes > segment.size_bytes:
            raise Corruption(segment.path, offset, f"an entry above {last}", str(header.position))
        yield header, window.view[at + header.header_bytes : at + size]
        offset, last = offset + header.size_bytes, header.position
        read_bytes = HOP_BYTES if header.value_bytes > BLOCK_BYTES else BLOCK_BYTES


def versions_of(
    header: EntryHeader,
    sections: Buffer,
    key: bytes | None,
    *,
    unsized_empties_survive: bool = False,
) -> Iterator[KeyVersion]:
    """Yields an entry's messages with this key; None: the messages without a key.

    `sections`: those that scan_keys() yields. `unsized_empties_survive`: the profile's field.
    """
    keys, values = sections[: header.key_bytes], sections[header.key_bytes :]
    # Native key sections hold keys verbatim: most entries need no decoding.
    if key is not None and header.codec == Codec.NATIVE and key not in bytes(keys):
        return
    with decoding(f"entry {header.position}"):
        batch = codec_of(header)(header, keys, values)
        # The size that a compaction assumes for the value, if it is not the actual one.
        taken = 0
        if unsized_empties_survive and isinstance(batch, PulsarBatch):
            taken = len(keys) if is_unsized(header, batch.metadata) else 0
        position, publish_time_ms = header.position, header.publish_time_ms
        for row in range(batch.rows):
            if batch.key(row) == key:
                yield KeyVersion(
                    position,
                    batch.batch_index(row),
                    publish_time_ms,
                    batch.event_time_ms(row),
                    taken or batch.value_bytes(row),
                    batch.key_is_base64(row),
                    is_unreadable=isinstance(batch, PulsarBatch) and batch.is_unreadable,
                )
