"""A data directory is its owner's alone: folders 0700, files 0600.

What a process creates while it holds the directory's lock (storage/lock.py) has no rights for
others, for its umask says so; so has what it starts, a worker and its JVM. A directory with wider
rights, of an earlier version or made by hand, is narrowed once: then nobody else gets into it.

    >>> (folder / "data" / "ledgers").mkdir(parents=True)
    >>> narrow(folder / "data")
    >>> oct((folder / "data" / "ledgers").stat().st_mode)
    '0o40700'
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.storage.names import (
    COMPACTOR,
    LEDGERS,
    LOCK,
    METADATA,
    REPAIRS,
    RESERVE,
    WRITE_MARK,
)

OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OURS = (LOCK, METADATA, LEDGERS, RESERVE, WRITE_MARK, REPAIRS, COMPACTOR)
_log = logging.getLogger(__name__)


def narrow(data_dir: Path) -> None:
    """Takes from others what rights they have on it, and on all that is ours in it.

    What is not ours to change, a mount point say, stays as it is, and the log says so.
    """
    if not _is_wide(data_dir):
        return
    # The folder itself last: as long as it is wide, a start that was cut off does all of it again.
    narrowed = [_narrow(path) for path in _paths(data_dir)]
    if not _narrow(data_dir) or not all(narrowed):
        _log.warning(
            "%s belongs to another user in part: others may have rights on it. Give it to the "
            "user that runs the broker, with mode 0700.",
            data_dir,
        )


def _paths(data_dir: Path) -> Iterator[Path]:
    for name in _OURS:
        yield data_dir / name
        for folder, folders, files in os.walk(data_dir / name):
            yield from (Path(folder, each) for each in (*folders, *files))


def _narrow(path: Path) -> bool:
    """Whether others have no rights on it any more."""
    try:
        if not path.is_symlink() and path.exists() and _is_wide(path):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    return True


def _is_wide(path: Path) -> bool:
    return bool(path.stat().st_mode & OTHERS)
