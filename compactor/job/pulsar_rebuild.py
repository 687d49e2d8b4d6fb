"""The rebuilding of a Pulsar batch from which a run removes messages.

As in Pulsar, an empty placeholder takes the place of a removed message, so that indexes stay. The
remaining messages, and all metadata except sizes, are copied as bytes. The metadata list the
remaining indexes (compacted_batch_indexes, of Pulsar 4.1), so that readers know them without
opening the batch.

The payload is compressed as it was. If it would grow, the rules of rebuild.py apply. An entry that
cannot be opened is returned unchanged.

Source: Pulsar's RawBatchConverter, and RawBatchMessageContainerImpl for renumbered batches.
"""

from __future__ import annotations

import numpy as np

from ledgerfold.compactor.job.pulsar_scan import Scanned, scan_batch
from ledgerfold.compactor.job.rebuild import RawEntry, fitting
from ledgerfold.compactor.positions import Integers
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    FLAG_PLAIN,
    EntryHeader,
    rebuild_header,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.pulsar import metadata as fields_of
from ledgerfold.storage.pulsar.metadata import is_sealed, parse_metadata, replaced
from ledgerfold.storage.pulsar.payload import PLACEHOLDER, decompressed, single_at
from ledgerfold.storage.varints import varint
from ledgerfold.v1.pulsar_pb2 import MessageMetadata

_Fields = dict[int, int | bytes | list[bytes] | None]


def keep_pulsar_rows(
    header: EntryHeader,
    entry: RawEntry,
    rows: Integers,
    path: str = "a segment",
    renumber: bool = False,
) -> RawEntry:
    """Returns the entry with only these rows, which ascend and are not empty; as keep_rows()."""
    metadata = parse_metadata(entry.key_section)
    if header.is_plain or is_sealed(metadata):
        return entry
    try:
        payload = decompressed(metadata, entry.value_section)
        scanned = scan_batch(payload, metadata.num_messages_in_batch)
    except InvalidRequest:
        return entry
    stored = np.flatnonzero(~scanned.is_placeholder)
    if len(stored) != header.message_count:
        return entry
    remaining = stored[rows]
    if renumber:
        return _renumbered(
            header, entry, metadata, payload, scanned.where(remaining), remaining, path
        )
    content = _with_placeholders(payload, scanned, remaining)
    fields: _Fields = {
        fields_of.COMPACTED_BATCH_INDEXES: b"".join(map(varint, remaining.tolist())),
    }
    return _built(header, entry.key_section, content, fields, len(remaining), path)


def changes_ids(header: EntryHeader, entry: RawEntry) -> bool:
    """Returns whether renumbering would change the ids of a whole batch."""
    metadata = parse_metadata(entry.key_section)
    if header.is_plain or is_sealed(metadata):
        return False
    return header.message_count == 1 or header.message_count < metadata.num_messages_in_batch


def _with_placeholders(payload: bytes, scan: Scanned, indexes: Integers) -> bytes:
    """Returns the batch with these messages, and placeholders for all others."""
    breaks = np.flatnonzero(np.diff(indexes) != 1)
    firsts = np.concatenate((indexes[:1], indexes[breaks + 1]))
    lasts = np.concatenate((indexes[breaks], indexes[-1:]))
    gaps = firsts - np.concatenate(([0], lasts[:-1] + 1))
    parts = list[bytes]()
    runs = (gaps.tolist(), scan.starts[firsts].tolist(), scan.ends[lasts].tolist())
    for gap, start, end in zip(*runs, strict=True):
        parts += (PLACEHOLDER * gap, payload[start:end])
    parts.append(PLACEHOLDER * (len(scan.starts) - 1 - int(lasts[-1])))
    return b"".join(parts)


def _renumbered(
    header: EntryHeader,
    entry: RawEntry,
    metadata: MessageMetadata,
    payload: bytes,
    scan: Scanned,
    indexes: Integers,
    path: str,
) -> RawEntry:
    """Renumbers the remaining messages as if they had been published as one batch."""
    bounds = list(zip(scan.starts.tolist(), scan.ends.tolist(), strict=True))
    single, value_at = single_at(payload, bounds[0][0])
    last, _ = single_at(payload, bounds[-1][0])
    first_id, last_id = (
        each.sequence_id if each.HasField("sequence_id") else metadata.sequence_id + int(index)
        for each, index in ((single, indexes[0]), (last, indexes[-1]))
    )
    header = header._replace(sequence_id=last_id)
    fields: _Fields = {
        fields_of.COMPACTED_BATCH_INDEXES: None,
        fields_of.SEQUENCE_ID: first_id,
        fields_of.HIGHEST_SEQUENCE_ID: last_id,
        fields_of.NUM_MESSAGES_IN_BATCH: len(indexes),
    }
    if len(indexes) > 1:
        content = b"".join(payload[start:end] for start, end in bounds)
        return _built(header, entry.key_section, content, fields, len(indexes), path)
    fields |= {
        fields_of.NUM_MESSAGES_IN_BATCH: None,
        fields_of.HIGHEST_SEQUENCE_ID: None,
        fields_of.PARTITION_KEY: single.partition_key if single.HasField("partition_key") else None,
        fields_of.KEY_IS_BASE64: 1 if single.partition_key_b64_encoded else None,
        fields_of.ORDERING_KEY: single.ordering_key or None,
        fields_of.EVENT_TIME: single.event_time or None,
        fields_of.NULL_VALUE: 1 if single.null_value else None,
        fields_of.PROPERTIES: [each.SerializeToString() for each in single.properties],
    }
    header = header._replace(flags=header.flags | FLAG_PLAIN)
    content = payload[value_at : bounds[0][1]]
    return _built(header, entry.key_section, content, fields, 1, path)


def _built(
    header: EntryHeader, section: bytes, content: bytes, fields: _Fields, rows: int, path: str
) -> RawEntry:
    """Builds the entry of this uncompressed payload. Raises EntryTooLarge."""
    header_bytes = header.size_bytes - header.key_bytes - header.value_bytes
    key_section = replaced(section, fields | {fields_of.UNCOMPRESSED_SIZE: len(content)})
    # The metadata may get a compression field.
    room_bytes = ENTRY_BYTES_MAX - header_bytes - len(key_section) - 2
    compression, value_section = fitting(header, content, room_bytes, path, is_sized=False)
    if compression != header.compression:
        key_section = replaced(key_section, {fields_of.COMPRESSION: compression})
    header = header._replace(compression=compression)
    return RawEntry(
        rebuild_header(header, key_section, value_section, rows), key_section, value_section
    )
