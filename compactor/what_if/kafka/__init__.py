"""What-if replays of Kafka's cleaner under other settings."""
