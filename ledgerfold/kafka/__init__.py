"""Rules of a Kafka log that broker and worker share: segments, cleaning ranges, retention.

They are pure: no files, no clock, and only the settings that they are passed.
"""
