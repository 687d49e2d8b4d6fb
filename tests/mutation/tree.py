"""A copy of the checkout for inserting defects, one at a time. The checkout stays unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter"
)
# A mutant may allocate without limit: the address space of a process, in KiB.
_MEMORY_KB_MAX = 8 * 1024 * 1024


class Done(NamedTuple):
    """`code` None: it took too long and was killed."""

    code: int | None
    output: str


class Tree:
    """One copy. Used by one thread at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def changed(self, texts: Mapping[Path, bytes]) -> Iterator[None]:
        """Replaces files by these contents, by path below the root."""
        before = {path: (self.root / path).read_bytes() for path in texts}
        times = {path: (self.root / path).stat() for path in texts}
        try:
            for path, text in texts.items():
                (self.root / path).write_bytes(text)
            yield
        finally:
            for path, text in before.items():
                (self.root / path).write_bytes(text)
                # Copied bytecode belongs to the source with that time.
                stat = times[path]
                os.utime(self.root / path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def run(self, arguments: Sequence[str], timeout_s: float) -> Done:
        """Runs a Python command in the copy, with the modules of the copy."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "PYTHONHASHSEED": "0",
            # Bytecode of a mutant must not outlive it.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        limited = f'ulimit -v {_MEMORY_KB_MAX} 2>/dev/null; exec "$@"'
        with tempfile.TemporaryFile(mode="w+", errors="replace") as output:
            process = subprocess.Popen(
                ["sh", "-c", limited, "sh", sys.executable, *arguments],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code = _code_of(process, timeout_s)
            output.seek(0)
            return Done(code, output.read())


def _code_of(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            # A separate session, and so a separate group: it is killed with its children.
            os.killpg(process.pid, 9)
            process.wait()


@contextmanager
def copied() -> Iterator[Tree]:
    """Yields a fresh copy, which is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="ledgerfold-mutation-") as folder:
        root = Path(folder) / "tree"
        # `ledgerfold` links to its neighbours: those of the copy.
        shutil.copytree(ROOT, root, symlinks=True, ignore=_LEFT_OUT)
        tree = Tree(root)
        done = tree.run(["-c", "import ledgerfold; print(ledgerfold.__file__)"], 60)
        if not done.output.startswith(str(root)):
            raise RuntimeError(f"The copy imports another tree:\n{done.output}")
        yield tree
