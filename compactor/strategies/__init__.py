"""Compaction strategies, which choose the messages of a key that stay. One pure module each."""
