"""The gRPC handlers: each validates, calls the broker, and converts. No domain rules."""
