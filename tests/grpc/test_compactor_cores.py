"""`serve --compactor-cores`: the worker's processors, not the broker's, are limited."""

from __future__ import annotations

import os

import pytest

from ledgerfold.broker.client.administration.admin import Admin
from tests.conftest import MakeBroker

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="only Linux limits processes to processors"
)


def test_a_worker_uses_only_its_cores(broker_process: MakeBroker) -> None:
    broker = broker_process("--compactor-cores", "1", compactor="inline")
    broker.wait_for_compactor()
    with Admin(broker.url) as admin:
        worker = admin.broker_info().compactor_pid
    every = os.sched_getaffinity(0)
    assert os.sched_getaffinity(worker) == {max(every)}
    assert os.sched_getaffinity(broker.pid) == every
