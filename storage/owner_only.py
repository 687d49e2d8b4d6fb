"""Owner-only access to a data directory: folders 0700, files 0600.

A process that holds the directory's lock (storage/lock.py) has a umask that denies others all
access to the files it creates. Its child processes, a worker and its JVM, inherit it. A directory
with wider permissions, of an earlier version or created by hand, is narrowed once; then no other
user can enter it.

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

from ledgerfold.storage.errors import InvalidRequest
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
_FILES = (LOCK, RESERVE, WRITE_MARK)
_OURS = (*_FILES, METADATA, LEDGERS, REPAIRS, COMPACTOR)
_log = logging.getLogger(__name__)


def narrow(data_dir: Path) -> None:
    """Removes other users' permissions on the directory and on our files in it.

    Files that the process cannot change, a mount point for example, stay as they are and are
    logged. Links are not followed; `data_dir` itself may be one. Raises InvalidRequest if one of
    our files is a link.
    """
    data_dir = data_dir.resolve()
    if _is_wide(data_dir):
        _narrow_all(data_dir)
    # Afterwards: nobody else can create one any more.
    for name in _FILES:
        refuse_link(data_dir / name)


def refuse_link(path: Path) -> None:
    """Raises InvalidRequest for a link: writes would change the file of another user's choice."""
    if path.is_symlink():
        raise InvalidRequest(f"{path} is a link, which another user may have created. Remove it.")


def _narrow_all(data_dir: Path) -> None:
    # The folder itself last: while others can still enter it, the next start after an interruption
    # repeats everything.
    narrowed = [_narrow(path) for path in _paths(data_dir)]
    if not _narrow(data_dir) or not all(narrowed):
        _log.warning(
            "Parts of %s belong to another user: others may have access to them. Change the owner "
            "to the user that runs the broker, and the mode to 0700.",
            data_dir,
        )


def _paths(data_dir: Path) -> Iterator[Path]:
    for name in _OURS:
        if (data_dir / name).is_symlink():
            continue
        yield data_dir / name
        for folder, folders, files in os.walk(data_dir / name):
            yield from (Path(folder, each) for each in (*folders, *files))


def _narrow(path: Path) -> bool:
    """Removes others' permissions on `path`. Returns whether it succeeded."""
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
