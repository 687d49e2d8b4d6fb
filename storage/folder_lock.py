"""A lock on a folder: an flock on the folder itself, which ends with its process.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with locked_folder(folder):
...     with locked_folder(folder, waits=False) as is_held:
...         is_held
False
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked_folder(folder: Path, *, waits: bool = True) -> Iterator[bool]:
    """Holds the lock of a folder in the block, and yields True. Raises OSError.

    `waits` False: yields False if another one holds the lock, or the folder was removed meanwhile.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield waits or _is_there(descriptor, folder)
    finally:
        os.close(descriptor)


def _is_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except FileNotFoundError:
        return False
