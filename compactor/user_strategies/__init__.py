"""User-defined strategies, which are tried in a sandbox process before a run loads them."""
