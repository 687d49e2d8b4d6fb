"""Where the demonstrations' messages come from, and what must be left of them. No printing here."""
