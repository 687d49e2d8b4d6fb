"""A broker with a Kafka topic, in the test's process, on a disk that forgets (BrokerLab).

Batches go in through a producer or as another broker's would; reads go through a reader.

    >>> lab = KafkaLab({"cleanup.policy": "compact"})
    >>> lab.add([(b"a", b"1"), (b"b", None)])
    [(0, 1)]
    >>> lab.records()
    [(0, b'a', b'1'), (1, b'b', None)]
    >>> lab.close()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledgerfold.broker.kafka.cleaner.pass_result import PassResult
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_reader import KafkaReaderOptions
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.stream_reader import Checked, Entries
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch, records_of
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import MessageId
from tests.model.broker_lab import TOPIC, BrokerLab

Pair = tuple[bytes | None, bytes | None]


class KafkaLab(BrokerLab):
    """A lab whose topic is created on first use."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__()
        self.run(self.broker.create_topic(TOPIC, config))

    @property
    def kafka(self) -> KafkaTopic:
        return self.run(self.broker.kafka_topic(TOPIC, to_write=True))

    def batch(self, pairs: Sequence[Pair], **fields: int | bool) -> bytes:
        now_ms = self.clock.now_ms()
        base = int(fields.get("base_offset", 0))
        records = [
            KafkaRecord(base + at, now_ms, key, value) for at, (key, value) in enumerate(pairs)
        ]
        return build_batch(records, **fields)  # type: ignore[arg-type]

    def add(
        self, *batches: Sequence[Pair], origin: Origin = Origin.CLIENT, **fields: int | bool
    ) -> list[tuple[int, int]]:
        """Durably; first and last offsets."""
        data = b"".join(self.batch(pairs, **fields) for pairs in batches)
        appended = self.run(self.kafka.append_batches(data, origin))
        return [(each.first_offset, each.last_offset) for each in appended]

    def records(
        self, offset: int | None = None, *, committed: bool = False, topic: str = TOPIC
    ) -> list[tuple[int, bytes | None, bytes | None]]:
        """From that offset, or the log's start, to the end."""
        start = StartPosition(earliest=True)
        if offset is not None:
            start = StartPosition(message_id=MessageId(entry_id=offset), inclusive=True)

        async def read() -> list[tuple[int, bytes | None, bytes | None]]:
            loaded = await self.broker.kafka_topic(topic)
            reader = await loaded.open_reader(start, KafkaReaderOptions(committed))
            found: list[tuple[int, bytes | None, bytes | None]] = []
            try:
                while True:
                    reader.check(1)
                    steps = await reader.take() or []
                    for step in steps:
                        if isinstance(step, Entries):
                            for entry in step.entries:
                                body = entry.data[read_header(entry.data).header_bytes :]
                                found += [
                                    (each.offset, each.key, each.value)
                                    for each in records_of(body)
                                    if each.offset >= reader.first_offset
                                ]
                        elif isinstance(step, Checked) and not step.has_more:
                            return found
            finally:
                reader.detach()

        return self.run(read())

    def clean(self) -> PassResult:
        """A turn of the cleaner, on its topic."""
        return self.run(self.broker.cleaner.run_pass(TOPIC))

    def close(self) -> None:
        self.stop()
        self.loop.close()
