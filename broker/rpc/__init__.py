"""The gRPC handlers: each checks, asks the broker, and converts. No domain rule lives here."""
