"""A Kafka partition's log on the broker's ledgers, and Kafka's rules for it.

The rules are pure: no files, no event loop, no clock; time is an argument wherever it matters.
"""
