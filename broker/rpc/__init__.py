"""The gRPC handlers: each checks, asks the broker, and converts. No rule of the domain lives here."""
