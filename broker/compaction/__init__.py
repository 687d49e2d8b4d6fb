"""When a compaction runs, what it covers, how it is committed; the worker that carries it out."""
