"""Stats of topics and subscriptions under Pulsar's names."""
