"""What Kafka's cleaner would do to a topic's log under other settings."""
