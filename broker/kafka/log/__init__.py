"""A Kafka log on the broker's ledgers: segments, appends, reads, loading, truncation."""
