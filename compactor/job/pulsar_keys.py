"""The key columns of a Pulsar entry, in the form of a native key section.

An entry that cannot be opened has one row, regardless of the number of messages that it declares:
it survives, or is removed, as a whole. An encrypted batch is one message, with the key of its first
message. A batch that does not parse is not a message; it survives every run.

Source: Pulsar's RawBatchConverter and AbstractTwoPhaseCompactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.pulsar_scan import Scanned, scan_batch
from ledgerfold.compactor.positions import Integers, sums_of
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.native import HAS_KEY, KEY_IS_BASE64, NULL_VALUE
from ledgerfold.storage.pulsar.batch import is_unsized, single_bytes
from ledgerfold.storage.pulsar.metadata import is_sealed, parse_metadata
from ledgerfold.storage.pulsar.payload import decompressed
from ledgerfold.v1.pulsar_pb2 import MessageMetadata

# Keys are copied byte by byte, with 16 bytes of indexes for each, unless they are longer than this.
_KEY_BYTES_MEAN = 64
_U32, _I64 = np.dtype("<u4"), np.dtype("<i8")


class KeySection(NamedTuple):
    """The columns of a native key section (storage/native.py), with as many rows as the header
    counts.

    `is_opaque`: one row stands for all. `passes`: it is not a message, and survives.
    """

    key_offsets: bytes
    keys: bytes
    flags: bytes
    value_sizes: bytes
    event_times: bytes
    batch_indexes: bytes
    batch_size: int
    is_opaque: bool = False
    passes: bool = False


def pulsar_keys(
    header: EntryHeader,
    section: bytes,
    payload: Callable[[], bytes],
    unsized_empties_survive: bool = False,
) -> KeySection:
    """Returns the columns. `payload`: returns the value section, which only batches need.

    `unsized_empties_survive`: as in the plan. Raises InvalidRequest if the metadata do not parse: a
    broker does not store such an entry.
    """
    metadata = parse_metadata(section)
    if header.is_plain or is_sealed(metadata):
        counts_metadata = unsized_empties_survive and is_unsized(header, metadata)
        return _one(header, metadata, len(section) if counts_metadata else None)
    try:
        return _batch(header, metadata, payload())
    except InvalidRequest:
        return KeySection(
            bytes(8), b"", bytes(1), bytes(4), b"", b"", 1, is_opaque=True, passes=True
        )


def _one(
    header: EntryHeader, metadata: MessageMetadata, value_bytes: int | None = None
) -> KeySection:
    """Returns the columns of an entry that counts as one message. `value_bytes`: None: its own
    size.
    """
    key = metadata.partition_key
    if value_bytes is None:
        value_bytes = single_bytes(metadata, header)
    flags = 0
    if metadata.HasField("partition_key"):
        flags = HAS_KEY | (KEY_IS_BASE64 if metadata.partition_key_b64_encoded else 0)
    if metadata.null_value:
        flags |= NULL_VALUE
    times = b""
    if metadata.event_time:
        times = metadata.event_time.to_bytes(8, "little", signed=True)
    return KeySection(
        bytes(4) + len(key).to_bytes(4, "little"),
        key,
        bytes((flags,)),
        value_bytes.to_bytes(4, "little"),
        times,
        b"",
        1,
        is_opaque=not header.is_plain,
    )


def _batch(header: EntryHeader, metadata: MessageMetadata, section: bytes) -> KeySection:
    payload = decompressed(metadata, section)
    size = metadata.num_messages_in_batch
    scanned = scan_batch(payload, size)
    indexes = b""
    if scanned.is_placeholder.any():
        rows = np.flatnonzero(~scanned.is_placeholder)
        scanned, indexes = scanned.where(rows), rows.astype(_U32).tobytes()
    if len(scanned.starts) != header.message_count:
        raise InvalidRequest("A batch does not have as many messages as its header says.")
    flags = (
        scanned.has_key * HAS_KEY + scanned.is_base64 * KEY_IS_BASE64 + scanned.is_null * NULL_VALUE
    )
    times = scanned.event_times
    offsets, keys = _keys(payload, scanned)
    return KeySection(
        offsets.astype(_U32).tobytes(),
        keys,
        flags.astype(np.uint8).tobytes(),
        scanned.value_sizes.astype(_U32).tobytes(),
        b"" if times is None else times.astype(_I64).tobytes(),
        indexes,
        size,
    )


def _keys(payload: bytes, scan: Scanned) -> tuple[Integers, bytes]:
    """Returns the offsets of the keys, and the concatenated keys."""
    sizes = scan.key_sizes
    offsets = sums_of(sizes)
    if offsets[-1] > _KEY_BYTES_MEAN * len(sizes):
        starts = scan.key_starts.tolist()
        ends = (scan.key_starts + sizes).tolist()
        keys = (payload[start:end] for start, end in zip(starts, ends, strict=True))
        return offsets, b"".join(keys)
    at = np.arange(offsets[-1]) + np.repeat(scan.key_starts - offsets[:-1], sizes)
    return offsets, np.frombuffer(payload, np.uint8)[at].tobytes()
