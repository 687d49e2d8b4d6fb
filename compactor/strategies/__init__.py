"""Policies: which message of a key survives. One module each, pure: numbers in, numbers out."""
