"""Spark's daemon of Python workers, with everything a task needs imported before it forks.

Spark ends a Python worker that was idle for a minute. Its successor is a fork of this process and
so has numpy, pyarrow and our modules at once, instead of importing them for half a second. Spark
runs it as `python -m ledgerfold.compactor.daemon pyspark.worker` (session.py,
spark.python.daemon.module).
"""

from __future__ import annotations

# Threads do not survive a fork: none of these starts any when imported. (numpy's linear algebra
# would; session.py sets OPENBLAS_NUM_THREADS=1.)
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import ledgerfold.compactor.job.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
