"""Settings of Kafka topics and brokers, as Kafka 4.1 has them."""
