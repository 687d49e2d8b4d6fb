#!/usr/bin/env python
"""Exits with 0 if the broker of this container serves, as the health service of gRPC says.

    healthy.py

LEDGERFOLD_PORT is the port of the broker, as for `pulsar standalone`.
"""

import os
import sys

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

TIMEOUT_S = 4.0

with grpc.insecure_channel(f"127.0.0.1:{os.environ.get('LEDGERFOLD_PORT', '7650')}") as channel:
    try:
        answer = HealthStub(channel).Check(HealthCheckRequest(), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        sys.exit(f"The broker does not answer: {error.details()}")
if answer.status != HealthCheckResponse.SERVING:
    status = HealthCheckResponse.ServingStatus.Name(answer.status)
    sys.exit(f"The broker does not serve: {status}.")
