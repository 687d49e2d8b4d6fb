"""The checks of `doctor` that concern the disk and the data directory. They change nothing."""

from __future__ import annotations

import json
import os
import shutil
import stat
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from ledgerfold.broker.cli.doctor_check import Check, State
from ledgerfold.broker.common.sizes import format_size
from ledgerfold.version import __version__

_SPACE_MIN, _SPACE_GOOD = 64 << 20, 2 << 30
_SYNCS, _SYNC_BYTES, _SYNC_GOOD_MS = 10, 4096, 20.0
_LOCK_BYTES_MAX = 4096
_LOCKS = Path("/proc/locks")


class Owner(NamedTuple):
    """The last process that opened the data directory. `runs`: it still has it open."""

    pid: int
    version: str
    runs: bool


def owner_of(data_dir: Path) -> Owner | None:
    """Reads the lock; None without a readable one."""
    from ledgerfold.storage.names import lock_path

    try:
        with lock_path(data_dir).open("rb") as file:
            owner = json.loads(file.read(_LOCK_BYTES_MAX))
            inode = os.fstat(file.fileno()).st_ino
        pid = int(owner["pid"])
        return Owner(pid, str(owner["version"]), _is_locked(inode, pid))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_locked(inode: int, pid: int) -> bool:
    """Returns whether the lock is held. To try it could make a broker fail that starts now."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        # No /proc: the process may be another one by now.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return any(" FLOCK " in line and f":{inode} " in line for line in lines)


def nearest_folder(path: Path) -> Path:
    """Returns the path, or its nearest parent that exists: its disk is the one to check."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    free_text = f"{format_size(free)} free at {folder}"
    if free >= _SPACE_GOOD:
        return Check("disk space", State.OK, free_text)
    state = State.WARNING if free >= _SPACE_MIN else State.PROBLEM
    what = "free some: a compaction needs room for a copy of the compacted ledger"
    return Check("disk space", state, free_text, what)


def sync_time(folder: Path) -> Check:
    """Measures the median of some syncs of a file without a name."""
    took_ms = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(_SYNCS):
                file.write(bytes(_SYNC_BYTES))
                file.flush()
                began_s = time.perf_counter()
                os.fsync(file.fileno())
                took_ms.append((time.perf_counter() - began_s) * 1000)
    except OSError as error:
        what = f"make {folder} writable, or choose another folder"
        return Check("fsync", State.PROBLEM, f"{folder}: {error.strerror}", what)
    median_ms = statistics.median(took_ms)
    time_text = f"{median_ms:.1f} ms, the median of {_SYNCS}"
    if median_ms <= _SYNC_GOOD_MS:
        return Check("fsync", State.OK, time_text)
    what = "each publish waits for one: use a local disk, or serve --durability os for tests"
    return Check("fsync", State.WARNING, time_text, what)


def permissions(data_dir: Path) -> Check:
    name = "data directory"
    try:
        status = data_dir.stat()
    except FileNotFoundError:
        return Check(name, State.OK, f"{data_dir} does not exist: serve creates it")
    except OSError as error:
        return Check(name, State.PROBLEM, f"{data_dir}: {error.strerror}", f"ls -ld {data_dir}")
    if not stat.S_ISDIR(status.st_mode):
        return Check(name, State.PROBLEM, f"{data_dir} is not a folder", "give another --data")
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        what = f"chown -R {os.geteuid()} {data_dir}, as root; or start the broker as its owner"
        return Check(name, State.PROBLEM, f"{data_dir} belongs to user {status.st_uid}", what)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        what = f"chmod 700 {data_dir}; the next start does it"
        mode = f"{stat.S_IMODE(status.st_mode):03o}"
        return Check(name, State.WARNING, f"others may enter {data_dir} ({mode})", what)
    return Check(name, State.OK, f"{data_dir}, only for its owner")


def version(data_dir: Path, owner: Owner | None) -> Check:
    """Compares with the version that opened it last."""
    name = "data version"
    if owner is None:
        return Check(name, State.OK, "no broker has opened it")
    opened_by = f"opened by ledgerfold {owner.version}"
    if owner.runs:
        return Check(name, State.OK, f"{opened_by}, process {owner.pid}, which is running")
    if _numbers(owner.version) > _numbers(__version__):
        what = f"start it with {owner.version}: this is {__version__}, which may refuse it"
        return Check(name, State.WARNING, opened_by, what)
    return Check(name, State.OK, opened_by)


def _numbers(text: str) -> tuple[int, ...]:
    """Returns a version's numbers, for comparison; () if it has none."""
    parts = text.split("+")[0].split(".")
    return tuple(int(each) for each in parts if each.isdecimal())


def workers(data_dir: Path, owner: Owner | None) -> Check:
    """Looks for processes of a worker whose broker has died."""
    from ledgerfold.broker.worker.remains import processes, work_dir

    name = "worker processes"
    if owner is not None and owner.runs:
        return Check(name, State.OK, "those of the running broker")
    try:
        tokens = [each.name for each in work_dir(data_dir).iterdir()]
    except OSError:
        tokens = []
    pids = sorted(pid for token in tokens for pid in processes(token))
    if not pids:
        return Check(name, State.OK, "none are left")
    named = " ".join(map(str, pids))
    what = f"kill -9 {named}; the next start does it"
    return Check(name, State.WARNING, f"left by a worker that was killed: {named}", what)
