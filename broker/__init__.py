"""The broker: topics, subscriptions, routing, triggers, gRPC server, client, command line."""
