"""KafkaService: operations on Kafka topics in addition to publishing and reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledgerfold.broker.common.names import persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.kafka.log.aborted import take_over
from ledgerfold.broker.kafka.log.begin_segment import begin_segment
from ledgerfold.broker.kafka.log.validation import Appended, CopiedBatches
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.rpc.handlers import Handler, Handlers, calls_of
from ledgerfold.broker.rpc.kafka_cleaner import CleanerHandlers
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_topic import PAGE_BYTES, KafkaTopic
from ledgerfold.broker.topics.kafka_truncation import truncate_log
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1 import kafka_pb2

_ORIGINS = {
    kafka_pb2.KAFKA_ORIGIN_CLIENT: Origin.CLIENT,
    kafka_pb2.KAFKA_ORIGIN_COORDINATOR: Origin.COORDINATOR,
    kafka_pb2.KAFKA_ORIGIN_REPLICATION: Origin.REPLICATION,
}
_ORIGIN_NAMES = ", ".join(map(kafka_pb2.KafkaOrigin.Name, _ORIGINS))
_EPOCH_MAX = 2**15 - 1


def kafka_calls(broker: Broker) -> dict[str, Handler]:
    """Returns the handlers by their names in the wire contract."""
    return calls_of(KafkaHandlers(broker), CleanerHandlers(broker))


class KafkaHandlers(Handlers):
    async def _topic(self, name: str, *, to_write: bool = False) -> KafkaTopic:
        return await self._broker.kafka_topic(persistent_topic(name), to_write=to_write)

    async def init_producer_id(
        self, request: kafka_pb2.InitProducerIdRequest
    ) -> kafka_pb2.InitProducerIdResponse:
        allocate: Callable[[], int] = self._broker.metadata.producer_ids.allocate
        return kafka_pb2.InitProducerIdResponse(producer_id=await self._broker.in_thread(allocate))

    @runs_to_completion
    async def append(self, request: kafka_pb2.KafkaAppendRequest) -> kafka_pb2.KafkaAppendResponse:
        topic = await self._topic(request.topic, to_write=True)
        origin, copied = _ORIGINS.get(request.origin), _copied(request)
        if origin is None:
            raise InvalidRequest(
                f"{request.origin} is not a valid origin; valid origins are {_ORIGIN_NAMES}."
            )
        if copied is not None and origin is not Origin.REPLICATION:
            raise InvalidRequest(
                "`keep_segments` and `append_time_ms` require KAFKA_ORIGIN_REPLICATION."
            )
        if request.aborted and copied is None:
            raise InvalidRequest("`aborted` requires `keep_segments`.")
        appended = await topic.append_batches(request.batches, origin, copied)
        if request.aborted:
            await take_over(
                topic.log, topic.stored, list(map(AbortedTransaction.of, request.aborted))
            )
        return _appended(appended)

    @runs_to_completion
    async def end_transaction(
        self, request: kafka_pb2.EndTransactionRequest
    ) -> kafka_pb2.KafkaAppendResponse:
        if not 0 <= request.producer_epoch <= _EPOCH_MAX:
            raise InvalidRequest(
                f"A producer's epoch is between 0 and {_EPOCH_MAX}, not {request.producer_epoch}."
            )
        topic = await self._topic(request.topic, to_write=True)
        appended = await topic.end_transaction(
            request.producer_id,
            request.producer_epoch,
            commit=request.commit,
            timestamp_ms=request.timestamp_ms or self._broker.clock_ms(),
        )
        return _appended([appended])

    async def describe_log(
        self, request: kafka_pb2.DescribeLogRequest
    ) -> kafka_pb2.DescribeLogResponse:
        topic, cleaner = await self._topic(request.topic), self._broker.cleaner
        info = await topic.describe(
            batches=request.batches,
            batches_from=request.batches_from,
            bytes_max=request.batches_bytes_max or PAGE_BYTES,
            has_lists=not (request.batches and request.batches_only),
            lists_from=request.lists_from,
            lists_max=request.lists_max,
        )
        info.cleaning_state = str(cleaner.states.of(topic.name) or "")
        left_alone = cleaner.states.uncleanable.get(topic.name)
        if left_alone is not None:
            info.uncleanable_kind, info.uncleanable_reason = left_alone
        return info

    @runs_to_completion
    async def roll_segment(
        self, request: kafka_pb2.RollSegmentRequest
    ) -> kafka_pb2.RollSegmentResponse:
        topic = await self._topic(request.topic, to_write=True)
        if not request.HasField("base_offset"):
            return kafka_pb2.RollSegmentResponse(base_offset=await topic.roll())
        left = request.empty_modified_ms if request.HasField("empty_modified_ms") else None
        modified_ms = request.modified_ms if request.HasField("modified_ms") else None
        begun = await begin_segment(topic.log, topic.stored, request.base_offset, left, modified_ms)
        return kafka_pb2.RollSegmentResponse(base_offset=begun.base_offset)

    @runs_to_completion
    async def set_log_start(
        self, request: kafka_pb2.SetLogStartRequest
    ) -> kafka_pb2.SetLogStartResponse:
        partition = (await self._topic(request.topic, to_write=True)).partition
        move = partition.set_log_start if request.as_follower else partition.delete_records
        start = await move(request.offset)
        return kafka_pb2.SetLogStartResponse(log_start_offset=start)

    @runs_to_completion
    async def truncate_log(
        self, request: kafka_pb2.TruncateLogRequest
    ) -> kafka_pb2.TruncateLogResponse:
        name = persistent_topic(request.topic, "truncated")
        return kafka_pb2.TruncateLogResponse(
            **(await truncate_log(self._broker, name, request.offset))._asdict()
        )

    @runs_to_completion
    async def set_high_watermark(
        self, request: kafka_pb2.SetHighWatermarkRequest
    ) -> kafka_pb2.SetHighWatermarkResponse:
        topic = await self._topic(request.topic)
        held = request.offset if request.HasField("offset") else None
        if held is not None and held < 0:
            raise InvalidRequest(
                f"The high watermark cannot be held at {held}: an offset is 0 or more. Without "
                "an offset, it follows the log's end again."
            )
        return kafka_pb2.SetHighWatermarkResponse(
            high_watermark=topic.partition.hold_high_watermark(held)
        )


def _copied(request: kafka_pb2.KafkaAppendRequest) -> CopiedBatches | None:
    if not (request.keep_segments or request.append_time_ms):
        return None
    if not request.keep_segments:
        raise InvalidRequest("`append_time_ms` requires `keep_segments`.")
    return CopiedBatches(request.append_time_ms or None)


def _appended(appended: Sequence[Appended]) -> kafka_pb2.KafkaAppendResponse:
    times = [each.append_time_ms for each in appended if each.append_time_ms is not None]
    return kafka_pb2.KafkaAppendResponse(
        first_offsets=[each.first_offset for each in appended],
        last_offsets=[each.last_offset for each in appended],
        log_append_time_ms=-1 if not times else times[-1],
    )
