"""Verification and repair of a data directory."""
