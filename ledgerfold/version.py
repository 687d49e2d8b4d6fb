"""The version, said once: packaging reads it here, and so does whoever reports it."""

__version__ = "0.1.0"
