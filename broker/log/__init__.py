"""A topic's log: raw ledgers for appends and reads, the compacted view, the topic's record."""
