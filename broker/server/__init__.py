"""The broker process: start, signals, the gRPC server."""
