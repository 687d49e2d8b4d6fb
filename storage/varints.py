"""Numbers in protobuf's encoding: seven bits a byte, the lowest first.

>>> varint(300).hex(), len(varint(-1)), read_varint(varint(300), 0)
('ac02', 10, (300, 2))
"""

from __future__ import annotations

_BITS_MAX = 64
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Encodes a number of at most 64 bits."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Returns the number at `at`, and where it ends.

    Raises IndexError (the number is cut off), ValueError (it has more than ten bytes).
    """
    value = shift = 0
    while shift < _BITS_MAX:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError
