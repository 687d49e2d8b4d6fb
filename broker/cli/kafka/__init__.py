"""Verbs of Kafka topics: settings, logs, the cleaner."""
