"""The frames of the bulk streams between client and broker."""
