"""Kafka's log cleaner: the choice of a log, its cleaning, and retention."""
