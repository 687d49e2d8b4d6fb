"""The conversion of paths from outside to absolute paths.

Paths are passed to threads, to the compactor's process and to Spark's; some require absolute ones.
`..` is resolved through symbolic links; other links are kept.

>>> absolute_path("/data/./ledgers"), absolute_path("/usr/../data")
(PosixPath('/data/ledgers'), PosixPath('/data'))
>>> absolute_path("data") == Path.cwd() / "data"
True
"""

from __future__ import annotations

import os
from pathlib import Path


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """Returns the absolute path. Raises FileNotFoundError if `path` is relative and the working
    directory no longer exists.
    """
    absolute = Path(path).absolute()
    return absolute.resolve() if ".." in absolute.parts else absolute
