"""Numbers in protobuf's encoding: seven bits a byte, the lowest first.

>>> varint(300).hex(), len(varint(-1))
('ac02', 10)
"""

from __future__ import annotations

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
