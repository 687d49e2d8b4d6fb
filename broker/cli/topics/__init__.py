"""The verbs for topics, namespaces and subscriptions, as in pulsar-admin."""
