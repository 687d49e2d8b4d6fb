"""Sizes as people read them."""

from __future__ import annotations


def format_size(size_bytes: float) -> str:
    """Formats a size, with one decimal from KiB on.

    >>> format_size(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
