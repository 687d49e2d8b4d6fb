"""Idempotent producers and transactions of a Kafka partition."""
