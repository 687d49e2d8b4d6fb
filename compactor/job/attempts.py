"""The number of the attempt at a task that this process is making."""

from __future__ import annotations

import sys


def attempt_number() -> int:
    """Returns Spark's number of the attempt; 0 outside of Spark's tasks, where there is one
    attempt.
    """
    # In a Spark task, pyspark is imported already. Elsewhere it may not even be installed.
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())
