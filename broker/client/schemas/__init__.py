"""Schemas of messages, with the names of `pulsar.schema`: definitions, encoders, decoders."""
