"""A broker process with its worker on Spark for the differential test, as in production.

One of each serves all histories, which use topics with unique names; each begins at the time when
the previous one ended, because the clock moves forwards only. Kafka_local.py covers operations that
only this process can time or observe: those during a cleaning, crash points, reads.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.v1 import kafka_pb2, kafka_pb2_grpc
from tests.differential.kafka_product import NO_TURNS
from tests.model.kafka.cleaner import KAFKA
from tests.support.broker_process import BrokerProcess

_MEMORY = Path("/dev/shm")
_MESSAGE_BYTES_MAX = 1 << 28


class SparkBroker:
    """A Door."""

    where = "on Spark"
    leaves_out = frozenset(
        {
            "read uncommitted",
            "read committed",
            "delete-old",
            "reopen killed",
            "crash writing",
            "crash swapped",
            *(f"clean during {op}" for op in ("append", "roll", "pause")),
        }
    )

    def __init__(self, profile: str = KAFKA) -> None:
        self._root = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        settings = [f"--kafka-config={name}={text}" for name, text in NO_TURNS.items()]
        self._process = BrokerProcess(
            self._root / "data", arguments=["--test-clock", "0", "--profile", profile, *settings]
        )
        self._process.wait_for_compactor()
        self._admin = Admin(self._process.url)
        self._channel = grpc.insecure_channel(
            self._process.url,
            options=[("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX)],
        )
        self._stub: Any = kafka_pb2_grpc.KafkaServiceStub(self._channel)
        self.now_ms = 0
        self._count = 0
        self._topics: list[str] = []

    def begin(self, config: Mapping[str, str], now_ms: int) -> None:
        for topic in self._topics:
            self._admin.delete_topic(topic, force=True)
        self._topics = []
        self._count += 1
        self.call("SetKafkaConfig", kafka_pb2.SetKafkaConfigRequest(set=config))
        self.move_clock(now_ms)

    def close(self) -> None:
        self._channel.close()
        self._admin.close()
        self._process.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def call(self, name: str, request: Any) -> Any:
        asked = type(request)()
        asked.CopyFrom(request)
        if getattr(asked, "topic", ""):
            asked.topic = self._name(asked.topic)
        if name == "PlanCleaning":
            asked.topics[:] = map(self._name, asked.topics)
        try:
            return getattr(self._stub, name)(asked)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None

    def _name(self, log: str) -> str:
        return f"h{self._count}.{log}"

    def clean(
        self, request: kafka_pb2.CleanTurnRequest, during: Callable[[], None] | None
    ) -> kafka_pb2.CleanTurnResponse:
        assert during is None
        turn: kafka_pb2.CleanTurnResponse = self.call("Clean", request)
        return turn

    def create(self, topic: str, config: Mapping[str, str]) -> None:
        self._admin.create_topic(self._name(topic), kafka=config)
        self._topics.append(self._name(topic))

    def unload(self, topic: str) -> None:
        self._admin.unload(self._name(topic))

    def move_clock(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._admin.move_clock(to_ms=now_ms)

    def delete_old(self, topic: str) -> int:
        raise NotImplementedError("only in this process")

    def die(self, dying: Callable[[], None] | None, point: str = "") -> None:
        raise NotImplementedError("only in this process")

    def read(
        self, topic: str, offset: int | None, *, committed: bool
    ) -> list[tuple[int, int, bytes | None, bytes | None]]:
        raise NotImplementedError("only in this process")
