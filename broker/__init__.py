"""The broker: topics, subscriptions, routing, triggers, gRPC server, client, command line."""

__version__ = "0.1.0"
