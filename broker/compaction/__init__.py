"""Compaction control: the schedule, the range and the commit of runs."""
