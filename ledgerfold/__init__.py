"""Ledgerfold."""
