"""A SQL session on the Spark that the tests share, with the data source registered."""

from __future__ import annotations

import warnings

from pyspark.sql import SparkSession

from ledgerfold.compactor.job.session import Session
from ledgerfold.spark import LedgerfoldDataSource


def sql_session(session: Session) -> SparkSession:
    """Returns the session. Small jobs: one shuffle partition."""
    with warnings.catch_warnings():
        # pyspark imports pandas if installed, and warns about its version.
        warnings.simplefilter("ignore")
        sql = SparkSession(session.context)
        sql.conf.set("spark.sql.shuffle.partitions", "1")
        sql.dataSource.register(LedgerfoldDataSource)
    return sql
