"""Verbs that move data: produce, consume, import, export; verify and repair."""
