"""A page for browsers: the topics of a broker, their ledgers and compactions (docs/UI.md)."""
