"""Schemas of Pulsar topics: their definitions, and which may follow which. Pure."""
