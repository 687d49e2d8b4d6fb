"""Administration over gRPC: topics, policies, compaction, Kafka logs."""
