"""The version: the single definition, used by packaging and at run time."""

__version__ = "0.2.0"
