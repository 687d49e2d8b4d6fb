"""Measures the time until a broker serves, and its memory then, before Spark has started.

From the start of the process to its ready line, and to SERVING as the answer of the standard health
check (grpc.health.v1, the whole server). Resident memory is that of the broker process alone, while
the compactor starts. Against: real Pulsar 4.0.7 standalone, 8 s and 434 MB.
"""

from __future__ import annotations

import time

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.support.broker_process import BrokerProcess
from tests.support.processes import memory_bytes
from tests.support.waiting import wait_until

MB = 1e6


def run(options: Options) -> Report:
    report = Report("serve", "from the start of the process to health SERVING")
    ready, serving, memory = [], [], []
    for _ in range(options.rounds_or(5)):
        with options.fresh_folder() as folder:
            began = time.perf_counter()
            with BrokerProcess(folder / "data") as broker:
                ready.append(time.perf_counter() - began)
                _wait_serving(broker)
                serving.append(time.perf_counter() - began)
                memory.append(memory_bytes([broker.pid]) / MB)
    report.add("ready line", median(ready), "s", spread(ready))
    report.add("health SERVING", median(serving), "s", f"{spread(serving)}; Pulsar 8 s")
    report.add("resident memory then", median(memory), "MB", f"{spread(memory)}; Pulsar 434 MB")
    return report


def _wait_serving(broker: BrokerProcess) -> None:
    with grpc.insecure_channel(broker.url) as channel:
        check = HealthStub(channel).Check

        def is_serving() -> bool:
            answer: HealthCheckResponse = check(HealthCheckRequest(), wait_for_ready=True)
            return answer.status == HealthCheckResponse.SERVING

        wait_until(is_serving, "health SERVING")
