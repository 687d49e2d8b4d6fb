"""The connection to a broker, and the reconnecting streams on it."""
