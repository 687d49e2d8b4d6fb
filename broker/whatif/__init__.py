"""Forecasts of the effect of compaction strategies and schedules on a topic."""
