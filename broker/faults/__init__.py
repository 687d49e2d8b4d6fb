"""Faults on purpose, for tests of clients (`serve --allow-faults`): rules, and where they act."""
