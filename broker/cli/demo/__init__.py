"""`demo`: demonstrations on real or generated data."""
