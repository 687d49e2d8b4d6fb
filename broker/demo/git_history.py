"""A git repository's first-parent history as a keyed change log.

Key = path, value = commit, mode and blob, deletion = tombstone. After compaction the topic equals
the output of `git ls-tree -r` for the last commit.

Invalid UTF-8 in a path is escaped as \\xNN, on both sides of the comparison.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from ledgerfold.storage.errors import InvalidRequest

_LOG = (
    # Overrides of the user's configuration.
    *("-c", "log.diffMerges=separate"),
    *("-c", "log.showSignature=false"),
    *("-c", "diff.relative=false"),
    "log",
    "--first-parent",
    "--reverse",
    "--root",
    "-m",
    "--no-renames",
    "--ignore-submodules=none",
    "--raw",
    "-z",
    "--no-abbrev",
    "--format=commit %H",
)
_BLOCK_BYTES = 1 << 16


class Change(NamedTuple):
    """A change of a path. `mode` and `blob` are None if the path was deleted."""

    commit: str
    path: str
    mode: str | None
    blob: str | None

    @property
    def value(self) -> bytes | None:
        if self.mode is None:
            return None
        document = {"commit": self.commit, "mode": self.mode, "blob": self.blob}
        return json.dumps(document, separators=(",", ":")).encode()


def run_git(repository: Path, *arguments: str) -> bytes:
    """Returns the output of a git command. Raises InvalidRequest with git's error."""
    command = ["git", "-C", str(repository), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise InvalidRequest("git is not installed.") from error
    if done.returncode:
        raise InvalidRequest(f"git: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def is_shallow(repository: Path) -> bool:
    return run_git(repository, "rev-parse", "--is-shallow-repository").strip() == b"true"


def last_commit(repository: Path) -> str:
    return run_git(repository, "rev-parse", "--verify", "HEAD").decode().strip()


def changes(repository: Path, commit: str) -> Iterator[Change]:
    """Yields every change up to `commit`, oldest first, streamed from git."""
    command = ["git", "-C", str(repository), *_LOG, commit]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as git:
        assert git.stdout is not None
        yield from parse_log(_fields(git.stdout))
    if git.returncode:
        raise InvalidRequest(f"git log failed in {repository}.")


def _fields(stream: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(_BLOCK_BYTES):
        *complete, rest = (rest + block).split(b"\0")
        yield from complete
    if rest:
        yield rest


def parse_log(fields: Iterator[bytes]) -> Iterator[Change]:
    """Parses the fields of `git log --raw -z`: "commit <id>", then ":modes blobs status" and a path
    each.
    """
    commit = ""
    for field in fields:
        text = field.lstrip(b"\n")
        if text.startswith(b"commit "):
            commit = text[7:].split(b"\n")[0].decode()
        elif text.startswith(b":"):
            _, mode, _, blob, status = text[1:].decode().split(" ")
            path = _text(next(fields))
            is_deleted = status.startswith("D")
            yield Change(commit, path, None if is_deleted else mode, None if is_deleted else blob)


def tree(repository: Path, commit: str) -> dict[str, tuple[str, str]]:
    """Returns path -> (mode, blob) of a commit: the expected result."""
    listing = run_git(repository, "ls-tree", "-r", "-z", "--full-tree", commit)
    files = {}
    for line in listing.split(b"\0"):
        if line:
            about, _, path = line.partition(b"\t")
            mode, _, blob = about.decode().split(" ")
            files[_text(path)] = (mode, blob)
    return files


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
