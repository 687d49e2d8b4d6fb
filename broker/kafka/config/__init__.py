"""Settings of Kafka topics and brokers, as in Kafka 4.1."""
