"""A Kafka partition's log on the broker's ledgers, and its rules.

The rules are pure: no files, event loop or clock; the time is an argument.
"""
