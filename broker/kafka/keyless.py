"""Which records of a batch have no key: a compacted topic takes none of them.

Only lengths are read on the way through the records, so that an append to a compacted topic costs
little more than to another one; those of key and value must end within their record. What is wrong
in a record beyond that its readers say, as of every other entry: the broker decodes nothing.

    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> keyless_rows(build_columns([b"k", None, b""], [None, b"v", None], [1, 1, 1])[61:], 3)
    [1]

Source: LogValidator of Kafka 4.1, which goes through all of each record.
"""

from __future__ import annotations

from ledgerfold.storage.kafka.alike import ALONE_ROWS, more_alone, stretch_at
from ledgerfold.storage.kafka.section import invalid_record
from ledgerfold.storage.kafka.varints import read_bits


def keyless_rows(data: bytes, count: int) -> list[int]:
    """`data`: what follows the header, decompressed. Raises KafkaError when that is no records.

    A stretch of records that are all laid out alike is looked at as one, others one by one.
    """
    found, at, row, alone = list[int](), 0, 0, ALONE_ROWS
    try:
        while row < count:
            stretch = stretch_at(data, at, count - row)
            if stretch is not None:
                layout, alike = stretch
                if layout.key_bytes < 0:
                    found.extend(range(row, row + alike))
                at += alike * layout.stride
                row, alone = row + alike, ALONE_ROWS
            else:
                rows = range(row, min(row + alone, count))
                at = _look_through(data, at, rows, found)
                row, alone = rows.stop, more_alone(alone)
    except IndexError:
        raise invalid_record("Incorrect declared batch size, premature EOF reached") from None
    if at != len(data):
        raise invalid_record("Incorrect declared batch size, records still remaining in file")
    return found


def _look_through(data: bytes, end: int, rows: range, found: list[int]) -> int:
    """Adds those of the rows that have no key; where the last record ends.

    A record: its length | attributes | time | offset | key | value | headers; numbers are varints,
    and a length's first bit is its sign: of a null key it is set. Numbers of one byte or two are
    read in place: a call would take most of the time. Raises KafkaError, IndexError.
    """
    for row in rows:
        if (n := data[end]) < 128:
            at = end + 2
            end += 1 + (n >> 1)
        elif (high := data[end + 1]) < 128:
            at = end + 3
            end += 2 + (n - 128 + (high << 7) >> 1)
        else:
            n, at = read_bits(data, end)
            end, at = at + (n >> 1), at + 1
        while data[at] > 127:
            at += 1
        at += 1
        while data[at] > 127:
            at += 1
        at += 1
        if (n := data[at]) < 128:
            at += 1
        else:
            n, at = read_bits(data, at)
        if n & 1:
            found.append(row)
        else:
            at += n >> 1
        if (n := data[at]) < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            n, at = n - 128 + (high << 7), at + 2
        else:
            n, at = read_bits(data, at)
        if (at if n & 1 else at + (n >> 1)) >= end:
            raise invalid_record("A key or a value that does not end within its record.")
    return end
