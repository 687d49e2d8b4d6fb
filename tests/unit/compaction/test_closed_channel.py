"""Tests of calls to a worker whose channel is closed while they wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgerfold.broker.worker.connection import WorkerConnection
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest, DescribeDecisionsRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy


def connection(call: Any) -> WorkerConnection:
    """Returns a connection whose calls do that."""
    made = WorkerConnection.__new__(WorkerConnection)
    made._stub = cast(
        Any, SimpleNamespace(CheckStrategy=call, DescribeDecisions=call, Analyze=call)
    )
    made._metadata = (("secret", b"s"),)
    return made


def calls(worker: WorkerConnection) -> list[Any]:
    return [
        worker.check_strategy(CompactionStrategy(name="shop:Everything")),
        worker.describe_decisions(DescribeDecisionsRequest()),
        worker.analyze(AnalyzeRequest()),
    ]


@pytest.mark.parametrize("number", range(3))
def test_the_caller_gets_an_error(number: int) -> None:
    """grpc.aio ends such a call as if its task was cancelled. No test had closed a channel while a
    call waited for a worker: its caller waited for ever.
    """

    async def closed(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    async def body() -> None:
        asked = calls(connection(closed))
        with pytest.raises(CompactorUnavailable, match="The connection to the compactor was"):
            await asked.pop(number)
        for each in asked:
            each.close()

    asyncio.run(body())


def test_a_cancelled_task_stays_cancelled() -> None:
    async def hanging(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def body() -> None:
        for each in calls(connection(hanging)):
            task = asyncio.create_task(each)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(body())
