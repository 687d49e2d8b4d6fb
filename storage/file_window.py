"""The part of a file that is in memory while it is gone through from front to back.

    >>> data = b"0123456789"
    >>> window = Window(lambda size, offset: data[offset : offset + size], len(data))
    >>> at = window.place(4, size=2, wanted=4)
    >>> bytes(window.view[at : at + 2])
    b'45'

Bounds: the last read, which is what was asked for or what is needed where that is larger.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.storage.entry import Buffer


class Window:
    """`view` holds the file's bytes from `base` on."""

    def __init__(self, pread: Callable[[int, int], Buffer], size_bytes: int) -> None:
        self._pread, self._size_bytes = pread, size_bytes
        self.view, self.base = memoryview(b""), 0

    def place(self, offset: int, size: int, wanted: int) -> int:
        """Where in `view` the `size` bytes at `offset` begin; a read that it takes is `wanted`.

        There are fewer bytes than `size` at the end of the file only.
        """
        if offset - self.base + size > len(self.view):
            wanted = min(max(size, wanted), self._size_bytes - offset)
            self.view, self.base = memoryview(self._pread(wanted, offset)), offset
        return offset - self.base
