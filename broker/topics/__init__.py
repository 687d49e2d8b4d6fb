"""The broker as a set of topics: producers, partitions, trimming, operations, housekeeping."""
