"""Ledgerfold's answers to requests about Kafka topics: settings, appends, reads, stored batches.

Batches are built here, as a producer would build them, and returned one by one.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import queue
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.records import (
    ControlType,
    KafkaRecord,
    build_batch,
    marker_type,
    records_of,
)
from ledgerfold.v1 import (
    admin_pb2,
    data_pb2,
    kafka_pb2,
)
from ledgerfold.v1.records_pb2 import MessageId
from tests.cases.ledgerfold_cleaner import TIMEOUT_S, KafkaCalls
from tests.cases.ledgerfold_time import Time
from tests.cases.logs import CODECS

Answer = dict[str, Any]
# The number of entries at once.
_PERMITS = 1_000_000


class KafkaAnswers:
    """Methods are named after the operations that they answer."""

    def __init__(self, calls: KafkaCalls, time: Time) -> None:
        self._time, self._call = time, calls.call
        self._admin, self._data, self._kafka = calls.admin, calls.data, calls.kafka

    # Topics and settings.

    def kafka_create(self, topic: str, config: dict[str, str]) -> None:
        kafka = admin_pb2.KafkaConfig(values=config)
        self._call(self._admin.CreateTopic, admin_pb2.CreateTopicRequest(topic=topic, kafka=kafka))

    def kafka_config(self, config: dict[str, str | None], topic: str = "") -> None:
        given = {name: text for name, text in config.items() if text is not None}
        unset = [name for name, text in config.items() if text is None]
        request = kafka_pb2.SetKafkaConfigRequest(topic=topic, set=given, unset=unset)
        self._call(self._kafka.SetKafkaConfig, request)

    def kafka_get_config(self, topic: str = "") -> Answer:
        told = self._call(self._kafka.GetKafkaConfig, kafka_pb2.GetKafkaConfigRequest(topic=topic))
        return {"config": {each.name: [each.value, each.source] for each in told.entries}}

    # Appending.

    def kafka_append(self, topic: str, batches: list[Answer], origin: str = "client") -> Answer:
        built = b"".join(map(self._built, batches))
        number = getattr(kafka_pb2, f"KAFKA_ORIGIN_{origin.upper()}")
        request = kafka_pb2.KafkaAppendRequest(topic=topic, batches=built, origin=number)
        told = self._call(self._kafka.Append, request)
        spans = zip(told.first_offsets, told.last_offsets, strict=True)
        return {"batches": list(map(list, spans))}

    def _built(self, batch: Answer) -> bytes:
        base, now_ms = batch.get("at", 0), self._time.now_ms()
        records = [
            KafkaRecord(
                record.get("offset", base + number),
                record.get("timestamp", now_ms),
                _bytes(record, "key"),
                _bytes(record, "value"),
            )
            for number, record in enumerate(batch["records"])
        ]
        return build_batch(
            records,
            base_offset=base,
            compression=CODECS.index(batch.get("codec", "none")),
            producer_id=batch.get("pid", -1),
            producer_epoch=batch.get("epoch", -1),
            base_sequence=batch.get("sequence", -1),
            is_transactional=batch.get("transactional", False),
        )

    def kafka_marker(self, topic: str, pid: int, type: str, epoch: int = 0) -> Answer:
        request = kafka_pb2.EndTransactionRequest(
            topic=topic, producer_id=pid, producer_epoch=epoch, commit=type == "commit"
        )
        told = self._call(self._kafka.EndTransaction, request)
        return {"offset": told.first_offsets[0]}

    def kafka_roll(self, topic: str) -> Answer:
        told = self._call(self._kafka.RollSegment, kafka_pb2.RollSegmentRequest(topic=topic))
        return {"base": told.base_offset}

    def kafka_high_watermark(self, topic: str, offset: int | None = None) -> None:
        request = kafka_pb2.SetHighWatermarkRequest(topic=topic, offset=offset)
        self._call(self._kafka.SetHighWatermark, request)

    def kafka_log_start(self, topic: str, offset: int) -> None:
        request = kafka_pb2.SetLogStartRequest(topic=topic, offset=offset, as_follower=True)
        self._call(self._kafka.SetLogStart, request)

    def kafka_truncate(self, topic: str, offset: int) -> None:
        request = kafka_pb2.TruncateLogRequest(topic=topic, offset=offset)
        self._call(self._kafka.TruncateLog, request)

    # What there is.

    def kafka_log(self, topic: str) -> Answer:
        log = self._described(topic, batches=False)
        return {
            "stats": {
                "start": log.log_start_offset,
                "end": log.log_end_offset,
                "highWatermark": log.high_watermark,
                "lastStable": log.last_stable_offset,
                "checkpoint": log.checkpoint if log.HasField("checkpoint") else None,
                "size": sum(each.size_bytes for each in log.segments),
                "segments": [
                    {
                        "base": each.base_offset,
                        "size": each.size_bytes,
                        "modified": each.modified_ms,
                        "ledgers": list(each.ledger_ids),
                    }
                    for each in log.segments
                ],
                "producers": {
                    str(each.producer_id): {
                        "lastSequence": each.last_sequence,
                        "lastOffset": each.last_data_offset,
                        "epoch": each.producer_epoch,
                    }
                    for each in log.producers
                },
                "aborted": [
                    f"{each.producer_id}:{each.first_offset}..{each.last_offset}"
                    for each in log.aborted
                ],
            }
        }

    def _described(self, topic: str, *, batches: bool) -> Any:
        request = kafka_pb2.DescribeLogRequest(topic=topic, batches=batches)
        told = self._call(self._kafka.DescribeLog, request)
        assert not told.HasField("more_from"), "a case's log is smaller than a page"
        return told

    def kafka_batches(self, topic: str) -> Answer:
        """Returns the batches by segment, including empty segments."""
        log = self._described(topic, batches=True)
        told = [_told(each.batch) for each in log.batches]
        bounds = [each.base_offset for each in log.segments[1:]]
        return {
            "segments": [
                {
                    "base": segment.base_offset,
                    "active": segment.is_active,
                    "batches": [
                        each
                        for each in told
                        if segment.base_offset <= each["base"]
                        and (end is None or each["base"] < end)
                    ],
                }
                for segment, end in zip(log.segments, [*bounds, None], strict=True)
            ]
        }

    def kafka_read(
        self,
        topic: str,
        offset: int | None = None,
        at: str = "earliest",
        timestamp: int | None = None,
        committed: bool = False,
        max: int | None = None,
    ) -> Answer:
        """Returns the records that a consumer receives, from there to the end."""
        if timestamp is not None:
            start = data_pb2.StartPosition(publish_time_ms=timestamp)
        elif offset is not None:
            start = data_pb2.StartPosition(message_id=MessageId(entry_id=offset), inclusive=True)
        else:
            start = data_pb2.StartPosition()
            setattr(start, at, True)
        opened = data_pb2.ReadOpen(topic=topic, start=start, read_committed=committed)
        steps = (
            data_pb2.ReadRequest(open=opened),
            data_pb2.ReadRequest(permits=_PERMITS),
            data_pb2.ReadRequest(check_id=1),
        )
        records = []
        for batch, first in self._read(steps):
            records += [_record(each) for each in records_of(batch) if each.offset >= first]
        return {"records": records if max is None else records[:max]}

    def _read(self, steps: Sequence[Any]) -> Iterator[tuple[bytes, int]]:
        asked = _Requests(steps)
        checks = itertools.count(2)
        call = self._data.Read(iter(asked), timeout=TIMEOUT_S)
        first = 0
        try:
            for told in call:
                if told.HasField("ready"):
                    first = told.ready.first_offset
                for entry in told.entries:
                    yield entry[read_header(entry).header_bytes :], first
                if told.more_check_ids:
                    asked.put(data_pb2.ReadRequest(check_id=next(checks)))
                if told.end_of_data_check_ids:
                    return
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            asked.put(None)
            call.cancel()


class _Requests:
    """The requests of a stream: the first ones, and those added later. None ends the stream."""

    def __init__(self, first: Sequence[Any]) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for each in first:
            self.put(each)

    def put(self, request: Any) -> None:
        self._queue.put(request)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._queue.get, None)


def _bytes(record: Answer, name: str) -> bytes | None:
    encoded = record.get(f"{name}B64")
    return None if encoded is None else base64.b64decode(encoded)


def _record(record: KafkaRecord) -> Answer:
    told: Answer = {"offset": record.offset, "timestamp": record.timestamp_ms}
    for name, content in (("keyB64", record.key), ("valueB64", record.value)):
        if content is not None:
            told[name] = base64.b64encode(content).decode()
    return told


def _told(batch: bytes) -> Answer:
    header = read_batch_header(batch)
    marker = marker_type(batch)
    return {
        "base": header.base_offset,
        "last": header.last_offset,
        "codec": CODECS[header.compression],
        "horizon": header.delete_horizon_ms,
        "pid": header.producer_id,
        "epoch": header.producer_epoch,
        "sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "marker": marker.name.lower() if isinstance(marker, ControlType) else None,
        "records": [] if header.is_control else list(map(_record, records_of(batch))),
        "md5": hashlib.md5(batch).hexdigest(),
    }
