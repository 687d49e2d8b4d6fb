"""Schemas of Pulsar topics: their definitions, and the rules of compatibility. Pure."""
