"""Spark's daemon of Python workers, which imports all modules of a task before it forks.

Spark ends a Python worker after a minute of idleness. Its successor is a fork of this process and
so has numpy, pyarrow and our modules already, instead of importing them for half a second. Spark
runs it as `python -m ledgerfold.compactor.daemon pyspark.worker` (compactor/job/session.py,
spark.python.daemon.module).
"""

from __future__ import annotations

# Threads do not survive a fork: none of these modules starts any on import. (numpy's linear algebra
# would; compactor/job/session.py sets OPENBLAS_NUM_THREADS=1.)
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import ledgerfold.compactor.job.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
