"""`demo`: demonstrations on real data."""
