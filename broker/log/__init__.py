"""A topic's log: raw ledgers that are appended to and read, the view, the record of the topic."""
