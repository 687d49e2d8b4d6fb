"""Kafka's log cleaner: which log is next, one cleaning of it, retention."""
