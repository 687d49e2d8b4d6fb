"""Rules of a Kafka log that the broker and the worker both go by: its segments, what of them the
cleaner may touch, what retention lets go. Pure: no files, no clock, no settings but those they ask.
"""
