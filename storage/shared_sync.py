"""A sync of one folder that several threads share.

A sync covers what was done before it began. So a caller that finds a sync running waits for the
next one, which it shares with all callers that arrive meanwhile: many new ledgers at once cost a
few syncs of the ledgers folder.

    >>> from ledgerfold.storage.files import REAL
    >>> SharedSync(folder, REAL).sync()
"""

from __future__ import annotations

import threading
from pathlib import Path

from ledgerfold.storage.files import Files


class SharedSync:
    """The syncs of one folder. Threads share it."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder, self._files = folder, files
        # Held during a sync.
        self._lock = threading.Lock()
        # The number of syncs begun, and the failures of syncs for which a caller waits.
        self._sync_count = 0
        self._failure: tuple[int, BaseException] | None = None

    def sync(self) -> None:
        """Makes the present names in the folder durable. Raises DiskFailure.

        After a failure, all callers that waited for that sync get the error.
        """
        # The first sync that begins after this line. One more if another begins right now.
        needed = self._sync_count + 1
        with self._lock:
            if self._sync_count >= needed:
                if self._failure is not None and self._failure[0] >= needed:
                    raise self._failure[1]
                return
            self._sync_count += 1
            try:
                self._files.sync_dir(self._folder)
            except BaseException as error:
                self._failure = self._sync_count, error
                raise
