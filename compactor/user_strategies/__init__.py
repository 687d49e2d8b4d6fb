"""Strategies that users write: tried in a process of their own before a run loads them."""
