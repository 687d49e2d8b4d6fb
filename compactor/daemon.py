"""Spark's daemon of Python workers, which imports all modules of a task before it forks.

Spark ends a Python worker after a minute of idleness. Its successor is a fork of this process and
so has numpy, pyarrow and the modules of this package already, instead of importing them for a
quarter of a second. Spark runs it as `python -m ledgerfold.compactor.daemon pyspark.worker`
(compactor/job/session.py, spark.python.daemon.module).

A Python worker collects garbage after each task. What this process has imported is exempt: to visit
it would take 30 ms each time, and copy the pages that the workers share.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from ledgerfold.garbage import garbage_kept


def without_archives(path: Sequence[str]) -> list[str]:
    """Removes the archives of the pyspark that a search path has as a package, too.

    Spark puts archives of pyspark and py4j first. Python compiles modules from them in every
    process, for a third of a second; the installed ones are compiled. Elsewhere, an executor may
    have only the archives, or those of another version.
    """
    packages = (os.path.join(folder, "pyspark") for folder in path)
    imported = next(filter(_is_package, packages), None)
    if imported is None:
        return list(path)
    archives = os.path.realpath(os.path.join(imported, "python", "lib"))
    return [each for each in path if os.path.dirname(os.path.realpath(each)) != archives]


def _is_package(folder: str) -> bool:
    """Returns whether Python imports it, unlike a copy of Spark in a folder of this name."""
    return os.path.isfile(os.path.join(folder, "__init__.py"))


def main() -> None:
    sys.path[:] = without_archives(sys.path)
    with garbage_kept():
        # Threads do not survive a fork: none of these modules starts any on import. (numpy's linear
        # algebra would; compactor/job/session.py sets OPENBLAS_NUM_THREADS=1.)
        import pyspark.worker  # noqa: F401
        from pyspark.daemon import manager

        import ledgerfold.compactor.job.tasks  # noqa: F401
        from ledgerfold.storage import snappy

        snappy.library()
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
