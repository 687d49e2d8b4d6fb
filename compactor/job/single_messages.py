"""The key sections of entries of one message, decoded together.

A producer without batches sends each message as an entry. Their key sections differ in the key's
length and a few numbers, so numpy reads the columns of thousands at once. A call of Python for each
would cost more than the reading.

    0a 08 u32 u32   key_offsets: 0 and the length
    12 length key   keys, of 1 to KEY_BYTES_MAX bytes
    1a 01 flags
    22 04 u32       value_sizes
    2a 08 i64       event_times, if set

A key section in another form, which protobuf allows, is left to the parser.
"""

from __future__ import annotations

import numpy as np

from ledgerfold.compactor.job.header_blocks import HeaderBlock, checksums
from ledgerfold.compactor.job.segment_map import SegmentMap
from ledgerfold.compactor.positions import Booleans, Bytes, Integers
from ledgerfold.storage.entry import Codec
from ledgerfold.v1.entry_pb2 import NativeKeys

# The length of a longer key takes two bytes.
KEY_BYTES_MAX = 127
_FIXED_BYTES, _TIME_BYTES = 21, 10
# Below this number, a call for each entry costs less.
BLOCK_MIN = 16


def single_messages(segment: SegmentMap, block: HeaderBlock) -> NativeKeys | None:
    """Returns the key columns of the block, one row for each entry, without event times.

    None if an entry is not a single native message in the usual form, or damaged.
    """
    fields, key_bytes = block.fields, block.column("key_bytes")
    if (
        len(fields) < BLOCK_MIN
        or (fields["codec"] != Codec.NATIVE).any()
        or (fields["message_count"] != 1).any()
        or (key_bytes > _FIXED_BYTES + _TIME_BYTES + KEY_BYTES_MAX).any()
        or (key_bytes <= _FIXED_BYTES).any()
    ):
        return None
    sections = segment.key_sections(block)
    if (checksums(sections) != fields["key_crc"]).any():
        return None
    return _columns(b"".join(sections), key_bytes)


def _columns(joined: bytes, sizes: Integers) -> NativeKeys | None:
    content = np.frombuffer(joined, np.uint8)
    # A word at any byte.
    words = np.ndarray(len(joined) - 3, "<u4", joined, 0, (1,))
    starts = np.cumsum(sizes) - sizes
    lengths = content[starts + 11].astype(np.int64)
    timed = sizes == lengths + _FIXED_BYTES + _TIME_BYTES
    if not ((timed | (sizes == lengths + _FIXED_BYTES)) & (lengths <= KEY_BYTES_MAX)).all():
        return None
    ends = starts + 12 + lengths
    if not (
        _is(content, starts, 0x0A, 8)
        and not words[starts + 2].any()
        and (words[starts + 6] == lengths).all()
        and (content[starts + 10] == 0x12).all()
        and lengths.all()
        and _is(content, ends, 0x1A, 1)
        and _is(content, ends + 3, 0x22, 4)
        and _is(content, ends[timed] + 9, 0x2A, 8)
    ):
        return None
    offsets = np.zeros(len(sizes) + 1, "<u4")
    np.cumsum(lengths, out=offsets[1:])
    is_key = _inside(len(content), starts + 12, ends)
    return NativeKeys(
        key_offsets=offsets.tobytes(),
        keys=content[is_key].tobytes(),
        flags=content[ends + 2].tobytes(),
        value_sizes=words[ends + 5].tobytes(),
    )


def _is(content: Bytes, places: Integers, tag: int, size: int) -> bool:
    """Returns whether a field of that tag and size begins at each of `places`."""
    return bool((content[places] == tag).all() and (content[places + 1] == size).all())


def _inside(count: int, starts: Integers, ends: Integers) -> Booleans:
    """Returns which of `count` places are within one of the ranges, which do not touch."""
    changes = np.zeros(count + 1, np.int8)
    changes[starts] = 1
    changes[ends] = -1
    inside: Booleans = np.cumsum(changes[:-1], dtype=np.int8).astype(np.bool_)
    return inside
