#!/usr/bin/env python
"""Exits with 0 if the broker of this container serves, as the health service of gRPC says.

A broker with TLS is healthy if it completes a handshake, or demands a certificate of its client.

    healthy.py

LEDGERFOLD_PORT is the port of the broker, as for `pulsar standalone`.
"""

import os
import socket
import ssl
import sys

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

TIMEOUT_S = 4.0
PORT = os.environ.get("LEDGERFOLD_PORT", "7650")


def speaks_tls() -> bool:
    """Returns whether the port completes a handshake. Nothing is sent to it, or believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection(("127.0.0.1", int(PORT)), TIMEOUT_S) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        return "CERTIFICATE_REQUIRED" in str(error)
    except OSError:
        return False
    return True


with grpc.insecure_channel(f"127.0.0.1:{PORT}") as channel:
    try:
        answer = HealthStub(channel).Check(HealthCheckRequest(), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        sys.exit(None if speaks_tls() else f"The broker does not answer: {error.details()}")
if answer.status != HealthCheckResponse.SERVING:
    status = HealthCheckResponse.ServingStatus.Name(answer.status)
    sys.exit(f"The broker does not serve: {status}.")
