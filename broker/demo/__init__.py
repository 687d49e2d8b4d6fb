"""The messages of the demonstrations, and their expected results. Prints nothing."""
