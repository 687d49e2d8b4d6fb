"""Finds records without a key: compacted topics refuse them.

The pass over the records also checks that they can be read: a record that no cleaning could read
would block all after it. Parts must end where their record does, offset deltas rise by one from
zero, and headers match their count. Only lengths are read, so that an append to a compacted topic
costs little more than to another one.

    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> keyless_rows(build_columns([b"k", None, b""], [None, b"v", None], [1, 1, 1])[61:], 3)
    [1]

Source: LogValidator of Kafka 4.1 and DefaultRecord.readFrom, which go through all of each record.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.frame import Frames, Piece, SingleRecords, UniformRun
from ledgerfold.storage.kafka.section import HEADER_BYTES_MIN, invalid_record
from ledgerfold.storage.kafka.uniform_records import SINGLE_ROWS, more_single_rows, uniform_run_at
from ledgerfold.storage.kafka.varints import read_bits, read_varint

_FRAMES = Frames()


def keyless_rows(data: bytes, count: int, headers_max: int | None = None) -> Sequence[int]:
    """Returns the rows without a key. `data`: the decompressed records. Raises KafkaError if they
    are invalid.

    A batch with the same frame as an earlier one is not scanned again. A run of uniform records is
    checked at once, others one by one, with at most `headers_max` headers in total.
    """
    frame = _FRAMES.fitting(data, count)
    return _looked_through(data, count, headers_max) if frame is None else frame.keyless.tolist()


def _looked_through(data: bytes, count: int, headers_max: int | None) -> list[int]:
    pieces = list[Piece]()
    walk = _Walk(data, len(data) if headers_max is None else headers_max)
    at, row, single_rows = 0, 0, SINGLE_ROWS
    try:
        while row < count:
            run = uniform_run_at(data, at, count - row, counted_from=row)
            if run is not None:
                layout, row_count = run
                if layout.key_bytes < 0:
                    walk.keyless.extend(range(row, row + row_count))
                pieces.append(UniformRun(at, layout, row_count))
                at += row_count * layout.stride
                row, single_rows = row + row_count, SINGLE_ROWS
            else:
                rows = range(row, min(row + single_rows, count))
                pieces.append(SingleRecords(at, len(rows)))
                at = walk.through(at, rows)
                row, single_rows = rows.stop, more_single_rows(single_rows)
    except IndexError:
        raise invalid_record("Incorrect declared batch size, premature EOF reached") from None
    if at != len(data):
        raise invalid_record("Incorrect declared batch size, records still remaining in file")
    if count:
        _FRAMES.learn(data, count, pieces)
    return walk.keyless


class _Walk:
    """A pass over records one by one, which collects rows without a key."""

    def __init__(self, data: bytes, headers_max: int) -> None:
        self._data = data
        self._headers_left = headers_max
        self.keyless: list[int] = []

    def through(self, end: int, rows: range) -> int:
        """Checks these rows and returns where the last one ends. Raises KafkaError, IndexError.

        A record: its length | attributes | time | offset | key | value | headers; numbers are
        varints, and a length's first bit is its sign: set for a null key. Numbers of one byte or
        two are decoded inline: a call would take most of the time.
        """
        data = self._data
        for row in rows:
            if (n := data[end]) < 128:
                at = end + 2
                end += 1 + (n >> 1)
            elif (high := data[end + 1]) < 128:
                at = end + 3
                n += (high << 7) - 128
                end += 2 + (n >> 1)
            else:
                n, at = read_bits(data, end)
                end, at = at + (n >> 1), at + 1
            if n & 1:
                raise invalid_record(f"Found invalid record size {~(n >> 1)}")
            if data[at] < 128:
                at += 1
            elif data[at + 1] < 128:
                at += 2
            else:
                _, at = read_bits(data, at)
            if (n := data[at]) < 128:
                at += 1
            elif (high := data[at + 1]) < 128:
                n, at = n - 128 + (high << 7), at + 2
            else:
                n, at = read_bits(data, at)
            if n != row << 1:
                raise invalid_record(f"Record {row} of a batch has another offset in it than {row}")
            if (n := data[at]) < 128:
                at += 1
            else:
                n, at = read_bits(data, at)
            if n & 1:
                self.keyless.append(row)
            else:
                at += n >> 1
            if (n := data[at]) < 128:
                at += 1
            elif (high := data[at + 1]) < 128:
                n, at = n - 128 + (high << 7), at + 2
            else:
                n, at = read_bits(data, at)
            if not n & 1:
                at += n >> 1
            at = self._past_headers(at) if data[at] else at + 1
            if at != end:
                raise invalid_record("Invalid record size: its parts end elsewhere than the record")
        return end

    def _past_headers(self, at: int) -> int:
        """Returns where the headers end. Each is the name's length | name | the value's length or
        null | value.
        """
        data = self._data
        count, at = read_varint(data, at)
        if not 0 <= count * HEADER_BYTES_MIN <= len(data) - at:
            raise invalid_record(f"Found invalid number of record headers {count}")
        self._headers_left -= count
        if self._headers_left < 0:
            raise KafkaError(
                KafkaErrorKind.MESSAGE_TOO_LARGE,
                "The batch has more headers than a broker reads at once. Send its records in "
                "smaller batches, or with fewer headers.",
            )
        for _ in range(count):
            if (n := data[at]) < 128:
                at += 1
            else:
                n, at = read_bits(data, at)
            if n & 1:
                raise invalid_record(f"Found invalid record header key size {~(n >> 1)}")
            at += n >> 1
            if (n := data[at]) < 128:
                at += 1
            else:
                n, at = read_bits(data, at)
            if not n & 1:
                at += n >> 1
        return at
