"""Messages, ids and options: the arguments and results of client calls."""
