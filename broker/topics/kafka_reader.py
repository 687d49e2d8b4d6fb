"""A connected reader of a Kafka topic: an offset, and the range that it may see.

It sends what Kafka's consumer delivers: no markers, no batches without records, and under
`read_committed` nothing of aborted transactions, nor anything at or after the last stable offset.
An explicit offset out of the log's range is refused, as a fetch is (OFFSET_OUT_OF_RANGE), also when
retention overtakes a reader; the log's end is in range.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ledgerfold.broker.common.outgoing import READ_LEAST
from ledgerfold.broker.kafka.log.reads import Place, StoredBatch
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.stream_reader import (
    Checked,
    Entries,
    Step,
    StreamReader,
)
from ledgerfold.v1.data_pb2 import StartPosition


@dataclass(frozen=True)
class KafkaReaderOptions:
    read_committed: bool = False
    # Shown in stats; "" generates a name.
    name: str = ""


class KafkaReader(StreamReader[StoredBatch]):
    """A reader of one stream. Created by KafkaTopic.open_reader()."""

    def __init__(
        self,
        topic: LoadedTopic,
        partition: Partition,
        resolve_start: Callable[[StartPosition, bool], Awaitable[int]],
        options: KafkaReaderOptions,
        readers: set[KafkaReader],
    ) -> None:
        """Creates a reader, which is one of `readers` while it is connected."""
        name = options.name or f"reader-{secrets.token_hex(5)}"
        super().__init__(topic, partition.log.state, name)
        self.read_committed = options.read_committed
        self._partition, self._log, self._readers = partition, partition.log, readers
        self._resolve_start = resolve_start
        # The offsets after the returned batches, and after the read-ahead.
        self.offset = self._read_ahead_offset = 0
        self._location: Place | None = None

    def detach(self) -> None:
        super().detach()
        self._readers.discard(self)
        self._partition.on_visible.discard(self.wake)

    def _drop_ahead(self) -> None:
        if self._buffered:
            self._read_ahead_offset, self._location = self.offset, None
        super()._drop_ahead()

    async def move(self, start: StartPosition) -> None:
        """Moves to a start position. Raises OffsetOutOfRange."""
        offset = await self._resolve_start(start, self.read_committed)
        self.first_offset = self.offset = self._read_ahead_offset = offset
        self._location = None

    async def _next_steps(self) -> list[Step]:
        # Checks made before the read are answered by its result.
        checks, self._checks = self._checks, []
        if not self._buffered:
            await self._fill()
        chunk = self._next_chunk()
        steps = list[Step]()
        if chunk:
            messages = sum(each.header.record_count for each in chunk)
            self._count(messages, len(chunk), sum(each.header.size_bytes for each in chunk))
            steps.append(Entries([each.entry for each in chunk]))
            self.offset = chunk[-1].header.next_offset
        if checks:
            steps.append(Checked(checks, has_more=bool(chunk)))
        return steps

    async def _fill(self) -> None:
        """Reads until there is a batch to return, or no more."""
        partition, log = self._partition, self._log
        while not self._buffered:
            partition.check_in_range(self._read_ahead_offset)
            end = partition.visible_end(self.read_committed)
            aborted_in = (
                log.segments.since(self._read_ahead_offset) if self.read_committed else None
            )
            bytes_max = max(self.share.size_bytes, READ_LEAST)
            read = await log.reads.read(
                self._read_ahead_offset, end=end, bytes_max=bytes_max, location=self._location
            )
            self._location = read.location
            if not read.batches:
                break
            self._read_ahead_offset = read.next_offset
            self._buffered.extend(partition.visible(read.batches, aborted_in))
            self._ahead_bytes = bytes_max
            if not self._buffered:
                self.offset = self._read_ahead_offset

    def _next_chunk(self) -> list[StoredBatch]:
        """Returns read-ahead batches as the permits allow, at least one. A check counts as a
        permit.
        """
        chunk: list[StoredBatch] = []
        while self._buffered and (self.permits > 0 or not chunk):
            batch = self._buffered.popleft()
            self.permits -= batch.header.record_count
            chunk.append(batch)
        return chunk
