"""The Spark job of a compaction: plan, scan, merge, copy."""
