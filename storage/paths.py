"""Paths that come from outside become absolute there, once.

A path is handed on to threads, to the compactor's process and to Spark's, and some of them check
that it is absolute. `..` is followed through symbolic links; other links stay as they are named.

>>> absolute_path("/data/./ledgers"), absolute_path("/usr/../data")
(PosixPath('/data/ledgers'), PosixPath('/data'))
>>> absolute_path("data") == Path.cwd() / "data"
True
"""

from __future__ import annotations

import os
from pathlib import Path


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """Raises FileNotFoundError for a relative path when the working directory is gone."""
    found = Path(path).absolute()
    return found.resolve() if ".." in found.parts else found
