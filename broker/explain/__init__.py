"""Explanations of why a message is, or is not, in the compacted view."""
