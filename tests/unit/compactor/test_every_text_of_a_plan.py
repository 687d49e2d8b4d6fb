"""Hostile values in every text of every request of a worker.

Plans that make no sense are refused before Spark is asked, so none is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.compactor.job.progress import Parts
from ledgerfold.compactor.service import NAME, SECRET_KEY, CompactorService
from ledgerfold.compactor.strategies.watch import DEFAULT_LIMITS
from ledgerfold.compactor.user_strategies.sandbox import Trials
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.files import REAL
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1 import compactor_pb2
from ledgerfold.v1.compactor_pb2_grpc import add_CompactorServiceServicer_to_server
from tests.support.odd_texts import Path, check_refusal, odd_texts, request_with, text_paths

SECRET = b"secret"
METHODS = compactor_pb2.DESCRIPTOR.services_by_name["CompactorService"].methods
WALKS = [(method, path) for method in METHODS for path in text_paths(method.input_type)]
_MESSAGE_BYTES_MAX = 64 * 2**20


def fill(message: Message) -> None:
    """Fills in what the check of a plan needs; its input is no valid segment."""
    told: Any = message
    match message.DESCRIPTOR.name:
        case "CompactionPlan":
            told.ledgers_dir, told.ledger_id = "/data/ledgers", 2
            told.strategy = "publishing-order"
            told.segments.add(path="1/00000000000000000000.log")
            told.compacted_segments = 2
        case "CleanPlan":
            told.ledgers_dir = "/data/ledgers"
            told.upper_bound = -1
        case "AnalyzeRequest":
            told.strategies.add(name="newest")
            told.plan.compacted_segments = 1
        case "KafkaHistory":
            told.ledgers_dir = "ledgers"
        case "CompactionStrategy":
            told.name = "os:system"
        case "SegmentRecord":
            told.path = "1/00000000000000000000.log"


class Worker:
    """The service of a worker whose engine is never asked, behind a real server."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.executor = ThreadPoolExecutor(1)
        self.channel, self.server = self.run(self._served())

    async def _served(self) -> tuple[Any, grpc.aio.Server]:
        trials = Trials(DEFAULT_LIMITS, AllowedStrategies())
        info = compactor_pb2.GetCompactorInfoResponse()
        service = CompactorService(self.executor, REAL, lambda: 0.0, info, SECRET, trials)
        engine: Any = SimpleNamespace(cores=1, progress=SimpleNamespace(value=Parts()))
        service.engine = engine
        options = [("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX)]
        server = grpc.aio.server(options=options)
        add_CompactorServiceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}"), server

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def ask(self, method: MethodDescriptor, request: Message) -> None:
        path, metadata = f"/{NAME}/{method.name}", ((SECRET_KEY, SECRET),)
        data = request.SerializeToString()
        if method.server_streaming:
            async for _ in self.channel.unary_stream(path)(data, metadata=metadata):
                continue
        else:
            await self.channel.unary_unary(path)(data, metadata=metadata)

    async def close(self) -> None:
        await self.channel.close()
        await self.server.stop(None)
        del self.server, self.channel
        for _ in range(10):
            await asyncio.sleep(0)
        self.executor.shutdown()


@pytest.fixture(scope="module")
def texts_worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.run(worker.close())
    worker.loop.close()


@pytest.mark.parametrize(
    ("method", "path"), WALKS, ids=[f"{method.name} {'.'.join(path)}" for method, path in WALKS]
)
def test_text(
    texts_worker: Worker,
    caplog: pytest.LogCaptureFixture,
    method: MethodDescriptor,
    path: Path,
) -> None:
    """A cancellation finds nothing; all else is refused."""
    kind = GetMessageClass(method.input_type)
    for name, text in odd_texts(WALKS.index((method, path))):
        where = f"{method.name}.{'.'.join(path)}: {name}"
        request = request_with(kind, path, text, fill)
        try:
            texts_worker.run(texts_worker.ask(method, request))
            assert method.name == "Cancel", where
        except grpc.RpcError as error:
            found = check_refusal(error, text, where)
            assert isinstance(found, InvalidRequest), where
    # Closed loops of other tests may log during this one.
    assert not [each for each in caplog.records if each.name.startswith("ledgerfold")]
