"""A topic's log: raw ledgers that are read and appended to, the view, the topic's record."""
