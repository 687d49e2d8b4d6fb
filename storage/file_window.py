"""The part of a file that is in memory during a scan.

    >>> data = b"0123456789"
    >>> window = Window(lambda size, offset: data[offset : offset + size], len(data))
    >>> at = window.index(4, size=2, read_bytes=4)
    >>> bytes(window.view[at : at + 2])
    b'45'

Bounds: the size of the last read, which is `read_bytes` or the needed size, whichever is larger.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.storage.entry import Buffer


class Window:
    """A window of a file: `view` holds the file's bytes from `base` on."""

    def __init__(self, pread: Callable[[int, int], Buffer], size_bytes: int) -> None:
        self._pread, self._size_bytes = pread, size_bytes
        self.view, self.base = memoryview(b""), 0

    def index(self, offset: int, size: int, read_bytes: int) -> int:
        """Returns the index in `view` of the `size` bytes at `offset`.

        If the window does not hold them, it reads `read_bytes` bytes from there.
        Fewer than `size` bytes follow only at the end of the file.
        """
        if not self.base <= offset <= self.base + len(self.view) - size:
            read_bytes = min(max(size, read_bytes), self._size_bytes - offset)
            self.view, self.base = memoryview(self._pread(read_bytes, offset)), offset
        return offset - self.base
