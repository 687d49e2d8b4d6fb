"""The synchronous API."""
