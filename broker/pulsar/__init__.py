"""Pulsar's binary protocol: the same topics for Pulsar's own clients."""
