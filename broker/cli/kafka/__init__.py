"""The verbs for Kafka topics: settings, logs, the cleaner."""
