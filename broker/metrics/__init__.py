"""Prometheus metrics: which there are, how they are read off a broker, and their HTTP server."""
