"""`what-if`: its options, its answers as rows, tables and pictures."""
