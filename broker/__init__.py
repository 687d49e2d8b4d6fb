"""The broker: topics, subscriptions, routing, triggers, the gRPC server, the client, the command line."""

__version__ = "0.1.0"
