"""The verbs for data: produce, consume, import, export; verify and repair."""
