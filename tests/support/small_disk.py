"""A disk of a few MiB that can be filled: a separate tmpfs.

Mounting needs root. Where that is not allowed, `CannotMount` says so.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

SIZE_MB = 48
_BLOCK_BYTES = 64 * 1024


class CannotMount(Exception):
    """Raised with the error text of `mount`."""


class SmallDisk:
    """A context manager that creates `path` and mounts the disk there."""

    def __init__(self, path: Path, size_mb: int = SIZE_MB) -> None:
        self.path = path
        self._size_mb = size_mb
        self._ballast = path / "ballast"

    def __enter__(self) -> SmallDisk:
        self.path.mkdir()
        command = ("mount", "-t", "tmpfs", "-o", f"size={self._size_mb}m", "tmpfs", str(self.path))
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotMount(getattr(error, "stderr", "") or str(error)) from error
        return self

    def __exit__(self, *exc_info: object) -> None:
        # Lazily: a file that is still open somewhere must not keep the test from ending.
        subprocess.run(("umount", "--lazy", str(self.path)), check=True)

    def fill(self, leave_bytes: int = 0) -> None:
        """Fills the disk, then frees `leave_bytes`."""
        with self._ballast.open("ab", buffering=0) as ballast:
            size_bytes = _BLOCK_BYTES
            while size_bytes:
                try:
                    ballast.write(bytes(size_bytes))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size_bytes //= 2
        os.truncate(self._ballast, max(self._ballast.stat().st_size - leave_bytes, 0))

    def free(self) -> None:
        """Removes what `fill` wrote."""
        self._ballast.unlink(missing_ok=True)
