"""Whether a batch's records can be read back, and which of them have no key.

A batch that cannot would stand in front of all that follow it, for every reader and for the
cleaner: so it is refused, as Kafka refuses it. A compacted topic takes no record without a key.

    >>> from ledgerfold.storage.kafka.batch import read_batch_header
    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> batch = build_columns([b"k", None, b""], [None, b"v", None], [1, 1, 1])
    >>> keyless_rows(read_batch_header(batch), memoryview(batch)[61:])
    [1]

Source: LogValidator of Kafka 4.1, which goes through all records of each batch.
"""

from __future__ import annotations

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.compression import decompress
from ledgerfold.storage.kafka.reading import read_section
from ledgerfold.storage.kafka.section import invalid_record

# So many records are held at a time: a batch may be far larger when it is decompressed.
_ROWS_AT_ONCE = 1024


def keyless_rows(header: BatchHeader, section: Buffer) -> list[int]:
    """`section`: what follows the header. Raises KafkaError when its records cannot be read."""
    data = decompress(header.compression, section) if header.record_count else bytes(section)
    found, end, last = list[int](), 0, header.last_offset_delta
    try:
        for first in range(0, header.record_count, _ROWS_AT_ONCE):
            rows = min(_ROWS_AT_ONCE, header.record_count - first)
            columns, end = read_section(data, rows, 0, header.base_timestamp_ms, end)
            if min(columns.offsets) < 0 or max(columns.offsets) > last:
                raise invalid_record("A record whose offset is not among those of its batch.")
            found.extend(first + row for row, key in enumerate(columns.keys) if key is None)
    except IndexError:
        raise invalid_record("Incorrect declared batch size, premature EOF reached") from None
    if end != len(data):
        raise invalid_record("Incorrect declared batch size, records still remaining in file")
    return found
