"""The CRC32C of two pieces end to end, from those of the pieces: the second is not read again.

A checksum is linear: that of the first piece, carried past as many zeros as the second has bytes,
and that of the second, added without carry, are the whole's. To carry it past so many zeros takes a
table of 128 numbers, which is made when a length comes for the second time; till then the second
piece is read.

    >>> crcs, value = JoinedCrcs(), google_crc32c.value
    >>> joined = [crcs.joined(value(b"head"), b"body", value(b"body")) for _ in range(3)]
    >>> set(joined) == {value(b"headbody")}
    True

Source: crc32_combine of zlib.
"""

from __future__ import annotations

import google_crc32c

# Lengths whose tables are kept: 4 KB of memory each.
LENGTHS_MAX = 256
_ONES = 2**32 - 1
# CRC32C's, the lowest power in the highest bit.
_POLYNOMIAL = 0x82F63B78
# Of four bits each, the lowest ones first: what each value of them becomes.
_Table = list[list[int]]


class JoinedCrcs:
    """Remembers the lengths that come again."""

    def __init__(self) -> None:
        self._tables: dict[int, _Table | None] = {}

    def joined(self, first_crc: int, second: bytes, second_crc: int) -> int:
        """That of both pieces. `second_crc` was verified."""
        length, tables = len(second), self._tables
        table = tables.get(length)
        if table is None:
            self._see(length)
            crc: int = google_crc32c.extend(first_crc, second)
            return crc
        a, b, c, d, e, f, g, h = table
        return (
            second_crc
            ^ a[first_crc & 15]
            ^ b[first_crc >> 4 & 15]
            ^ c[first_crc >> 8 & 15]
            ^ d[first_crc >> 12 & 15]
            ^ e[first_crc >> 16 & 15]
            ^ f[first_crc >> 20 & 15]
            ^ g[first_crc >> 24 & 15]
            ^ h[first_crc >> 28]
        )

    def _see(self, length: int) -> None:
        if self._tables.pop(length, _NEVER_SEEN) is None:
            self._tables[length] = _table(length)
            return
        if len(self._tables) >= LENGTHS_MAX:
            del self._tables[next(iter(self._tables))]
        self._tables[length] = None


_NEVER_SEEN: _Table = []


def _table(length: int) -> _Table:
    """What carries a checksum past so many zeros."""
    carried = google_crc32c.extend(1 << 31 ^ _ONES, bytes(length)) ^ _ONES
    bits = [carried]
    # Each bit below stands for a power more.
    for _ in range(31):
        carried = carried >> 1 ^ (_POLYNOMIAL if carried & 1 else 0)
        bits.append(carried)
    bits.reverse()
    table = list[list[int]]()
    for lowest in range(0, 32, 4):
        row = [0]
        for bit in bits[lowest : lowest + 4]:
            row += [each ^ bit for each in row]
        table.append(row)
    return table
