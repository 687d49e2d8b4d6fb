"""The version, said once: packaging reads it here, and so do those who report it."""

__version__ = "0.2.0"
