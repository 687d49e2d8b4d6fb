"""The process: start, signals, the gRPC server."""
