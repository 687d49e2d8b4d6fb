"""Computes the CRC32C of two concatenated pieces from the checksums of the pieces.

A checksum is linear: advance the checksum of the first piece by as many zero bytes as the second
piece has, and XOR it with the checksum of the second piece. The result is the checksum of both.
Advancing uses a table of 128 numbers, which is built when a length occurs for the second time;
before that, the second piece is read.

    >>> crcs, value = JoinedCrcs(), google_crc32c.value
    >>> joined = [crcs.joined(value(b"head"), b"body", value(b"body")) for _ in range(3)]
    >>> set(joined) == {value(b"headbody")}
    True

Source: crc32_combine of zlib.
"""

from __future__ import annotations

import google_crc32c

# The number of lengths whose tables are kept: 4 KB of memory each.
LENGTHS_MAX = 256
_ONES = 2**32 - 1
# The polynomial of CRC32C, with the lowest power in the highest bit.
_POLYNOMIAL = 0x82F63B78
# A row for each four bits, the lowest bits first: the result for each value of them.
_Table = list[list[int]]


class JoinedCrcs:
    """Joins checksums, with a cache of tables for recurring lengths."""

    def __init__(self) -> None:
        self._tables: dict[int, _Table | None] = {}

    def joined(self, first_crc: int, second: bytes, second_crc: int) -> int:
        """Returns the checksum of both pieces. `second_crc` is verified already."""
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
    """Builds the table that advances a checksum by `length` zero bytes."""
    carried = google_crc32c.extend(1 << 31 ^ _ONES, bytes(length)) ^ _ONES
    bits = [carried]
    # Each lower bit represents the next higher power.
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
