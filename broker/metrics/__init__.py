"""Prometheus metrics: the catalogue, their values in a broker, and their HTTP server."""
