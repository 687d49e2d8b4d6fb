"""Fault injection, for tests of clients (`serve --allow-faults`): the rules, and their effects."""
