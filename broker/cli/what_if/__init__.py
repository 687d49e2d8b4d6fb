"""`what-if`: its options, and its results as rows, tables and plots."""
