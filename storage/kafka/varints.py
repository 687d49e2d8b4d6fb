"""Variable-length integers of records: zigzag, seven bits a byte, the lowest first.

    >>> VARINTS[0], VARINTS[-1], VARINTS[64], SIZED[64]
    (b'\\x00', b'\\x01', b'\\x80\\x01', 66)
    >>> read_varint(VARINTS[-(2**63)], 0)
    (-9223372036854775808, 10)

Source: `org.apache.kafka.common.utils.ByteUtils`.
"""

from __future__ import annotations

from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.varints import varint

# Tables keep numbers below that: lengths and differences of offsets and times are small and recur.
KEPT_MAX = 64 * 1024
INT64_MAX = 2**63 - 1
_INT64 = 2**64 - 1
_VARLONG_BYTES_MAX = 10


def int64(number: int) -> int:
    """Wraps a number to 64 bits, as Java's arithmetic does."""
    return ((number + 2**63) & _INT64) - 2**63


class _Varints(dict[int, bytes]):
    """The encoded bytes of numbers, built on first use."""

    def __missing__(self, number: int) -> bytes:
        wrapped = int64(number)
        encoded = varint(wrapped << 1 ^ wrapped >> 63)
        if -KEPT_MAX < number < KEPT_MAX:
            self[number] = encoded
        return encoded


class _Sized(dict[int, int]):
    """The room of a field with this many bytes, including its length; -1: null, without bytes."""

    def __missing__(self, size: int) -> int:
        sized = len(VARINTS[size]) + max(size, 0)
        if size < KEPT_MAX:
            self[size] = sized
        return sized


class _Counted:
    """The varints of 0, 1, 2 and so on, and their sizes, for dense offset deltas.

    >>> COUNTED.first(2), COUNTED.columns(64, 2, 2)
    (([b'\\x00', b'\\x02'], [1, 1]), [b'\\x80\\x82', b'\\x01\\x01'])
    """

    def __init__(self) -> None:
        self._varints: list[bytes] = []
        self._sizes: list[int] = []

    def first(self, count: int) -> tuple[list[bytes], list[int]]:
        """Returns the varints of the first `count` numbers, and their sizes."""
        varints, sizes = self._varints, self._sizes
        if len(varints) < count:
            varints = [VARINTS[number] for number in range(count)]
            sizes = list(map(len, varints))
            if count < KEPT_MAX:
                self._varints, self._sizes = varints, sizes
        return varints[:count], sizes[:count]

    def columns(self, first: int, count: int, size: int) -> list[bytes]:
        """Returns the varints of `count` numbers from `first` as columns of bytes.

        Returns [] unless all take `size` bytes, one to three, and three-byte varints fit their
        table.
        """
        if size == 3:
            return _three_byte_columns(first, count)
        least, columns = _COLUMNS.get(size, (0, []))
        return [each[first - least : first - least + count] for each in columns if first >= least]


VARINTS = _Varints()
SIZED = _Sized()
COUNTED = _Counted()
# For each size: its first number, and columns of the first and the second bytes. The first bytes
# repeat, the second byte counts the repetitions.
_FIRST_EACH, _SECOND_EACH = 64, 8192
_CYCLE = bytes(range(128, 256, 2))
_COLUMNS = {
    1: (0, [bytes(range(0, 128, 2))]),
    2: (64, [_CYCLE * 127, b"".join(bytes([each]) * _FIRST_EACH for each in range(1, 128))]),
}
# Columns of three-byte varints: the first and second bytes repeat with these periods, the third
# byte counts the periods.
_FIRST_BYTES = _CYCLE * (2 * _SECOND_EACH // _FIRST_EACH)
_SECOND_BYTES = b"".join(bytes([each]) * _FIRST_EACH for each in range(128, 256)) * 2


def _three_byte_columns(first: int, count: int) -> list[bytes]:
    third, behind = divmod(first, _SECOND_EACH)
    if not 0 < third < 127 or count > _SECOND_EACH:
        return []
    at, rows = first % _FIRST_EACH, min(count, _SECOND_EACH - behind)
    return [
        _FIRST_BYTES[at : at + count],
        _SECOND_BYTES[behind : behind + count],
        bytes([third]) * rows + bytes([third + 1]) * (count - rows),
    ]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at `at`, and where it ends. Raises KafkaError, IndexError."""
    bits, at = read_bits(data, at)
    return (bits >> 1) ^ -(bits & 1), at


def read_bits(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number before zigzag decoding, 64 bits, and where it ends."""
    # Most take one byte or two.
    if (bits := data[at]) < 128:
        return bits, at + 1
    if (high := data[at + 1]) < 128:
        return bits - 128 + (high << 7), at + 2
    bits = shift = 0
    for byte_at in range(at, at + _VARLONG_BYTES_MAX):
        byte = data[byte_at]
        bits |= (byte & 127) << shift
        if byte < 128:
            return bits & _INT64, byte_at + 1
        shift += 7
    raise KafkaError(KafkaErrorKind.INVALID_RECORD, "A varint has more than ten bytes.")
