"""The parts of the data source for Spark (ledgerfold/spark.py)."""
