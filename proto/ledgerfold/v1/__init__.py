"""The wire contract: what scripts/generate makes of the .proto files beside this module."""
