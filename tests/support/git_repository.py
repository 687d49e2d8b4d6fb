"""A new git repository made with git, without any configuration of the user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
}


class Repository:
    """A fresh one. Paths are bytes where they are odd."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str | bytes) -> bytes:
        return subprocess.run(
            ["git", "-C", self.path, *arguments],
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            check=True,
        ).stdout

    def write(self, name: str | bytes, content: str = "x") -> None:
        path = self._at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(content)

    def remove(self, name: str | bytes) -> None:
        os.remove(self._at(name))

    def _at(self, name: str | bytes) -> bytes:
        return os.path.join(os.fsencode(self.path), os.fsencode(name))

    def commit(self, *arguments: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change\nwith two lines\n:100644 100644 a b M", *arguments)
