"""Verbs of topics, namespaces and subscriptions, as pulsar-admin has them."""
