"""The subjects that answer requests about Kafka logs: the real cleaner's driver, the model, a
broker.

A subject answers the requests of the kafka-oracle with the same fields, as far as it has them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from tests.model.kafka.batches import Batch, size_of
from tests.model.kafka.cleaner import KAFKA
from tests.model.kafka.world import World

Answer = dict[str, Any]


class Subject(Protocol):
    """`is_one_process`: if one log ends abruptly, all do.

    `leaves_out`: kinds of requests that it does not support (kafka_generate.kind_of). `now_ms`: the
    time of its clock, if that moves forwards only: a history begins then.
    """

    @property
    def is_one_process(self) -> bool: ...
    @property
    def leaves_out(self) -> Collection[str]: ...
    @property
    def now_ms(self) -> int | None: ...
    def ask(self, request: Mapping[str, Any]) -> Answer: ...


class OracleProcess:
    """`command` serves many histories: JSON lines in, JSON lines out."""

    is_one_process = False
    leaves_out = ()
    now_ms = None

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            command, shell=True, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, request: Mapping[str, Any]) -> Answer:
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise EOFError(f"the oracle ended at {request}")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


class Sizes:
    """The sizes of compressed batches, learned from one side, because codecs differ between
    platforms.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], int] = {}
        self._guesses = 0

    def take_guesses(self) -> int:
        taken, self._guesses = self._guesses, 0
        return taken

    def forget(self) -> None:
        self._known.clear()

    def learn(self, log: str, batches: list[Answer]) -> None:
        for batch in batches:
            if batch["codec"] != "none":
                offsets = tuple(record["offset"] for record in batch["records"])
                self._known[log, batch["base"], offsets, batch["horizon"]] = batch["size"]

    def size_of(self, log: str, batch: Batch) -> int:
        offsets = tuple(record.offset for record in batch.records)
        if batch.codec == "none":
            return size_of(batch)
        known = self._known.get((log, batch.base, offsets, batch.horizon))
        if known is not None:
            return known
        self._guesses += batch.horizon is not None
        return _built_bytes(batch)


def _built_bytes(batch: Batch) -> int:
    """Returns the size as compressed by our codec, which should equal Kafka's. Without a
    horizon.
    """
    records = [KafkaRecord(*record) for record in batch.records]
    compression = KafkaCompression[batch.codec.upper()]
    return len(build_batch(records, base_offset=batch.base, compression=compression))


class Model(World):
    """The model; it gets the sizes of compressed batches."""

    def __init__(self, profile: str = KAFKA) -> None:
        self.sizes = Sizes()
        super().__init__(profile, self.sizes.size_of)

    def __str__(self) -> str:
        return "the model"

    def ask(self, request: Mapping[str, Any]) -> Answer:
        if request["op"] == "reset":
            self.sizes.forget()
        return super().ask(request)
