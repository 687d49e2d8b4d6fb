"""Messages, ids and options: what a client's caller gives and gets."""
