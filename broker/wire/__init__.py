"""Bytes between client and broker: frames of the bulk streams, errors as gRPC statuses."""
