"""Checks a data directory, and mends it as far as its files allow."""
