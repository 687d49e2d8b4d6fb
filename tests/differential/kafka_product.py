"""The product as a subject: a broker's KafkaService, with the kafka-oracle's requests.

    Product    the words
    Door       how the broker is reached: in this process (kafka_local.py), or over gRPC
               (kafka_process.py)

State that Kafka's process keeps in memory when one log is reopened (a high watermark that is held
back, uncleanable logs) is set again after a broker's death.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ledgerfold.storage.errors import InvalidRequest, KafkaError, LedgerfoldError, TopicNotFound
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, read_batch_header, sealed
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from ledgerfold.v1 import kafka_pb2
from tests.differential.kafka_told import told_batch, told_record
from tests.model.kafka.records import field_of

Json = dict[str, Any]
_DEFAULT_MAP_BYTES, _MAP_ENTRY_BYTES, _LOAD_FACTOR = 4 << 20, 24, 0.9
# A map has at least the slots of one MiB and a bit: the load factor determines the number of keys.
_MAP_SLOTS = 50_000
_EXPIRATION_MS = 86_400_000
# Passes and retention run on request.
NO_TURNS = {
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": str(200 * 365 * 86_400_000),
}
# Features that the product does not have, or does not offer as a request (docs/NOT_EMULATED.md).
# Kafka's classes, by kind, for cleanings that also fail there on an intact log.
_FAILURES = {"SEGMENT_INDEX_FULL": "IllegalArgumentException"}
LEFT_OUT = frozenset(
    {
        "clean during log-start",
        "group",
        "plan from",
        "read end",
        "crash renaming",
        "crash renamed",
        "crash marking",
        "crash finishing",
    }
)
_ORIGINS = {
    "client": kafka_pb2.KAFKA_ORIGIN_CLIENT,
    "coordinator": kafka_pb2.KAFKA_ORIGIN_COORDINATOR,
    "replication": kafka_pb2.KAFKA_ORIGIN_REPLICATION,
}


class Door(Protocol):
    """The access to one broker after the other. Topics by their short names; errors as the
    client's.
    """

    @property
    def where(self) -> str: ...
    @property
    def leaves_out(self) -> frozenset[str]:
        """Returns the operations that it does not support (kafka_generate.py)."""
        ...

    @property
    def now_ms(self) -> int | None:
        """Returns the broker's time; each history may have a separate clock."""
        ...

    def begin(self, config: Mapping[str, str], now_ms: int) -> None:
        """Starts a broker without a topic of that name; `config`: its settings, with automatic
        passes disabled.
        """
        ...

    def call(self, name: str, request: Any) -> Any: ...
    def clean(
        self, request: kafka_pb2.CleanTurnRequest, during: Callable[[], None] | None
    ) -> kafka_pb2.CleanTurnResponse:
        """`during`: executed as soon as the worker has the request."""
        ...

    def create(self, topic: str, config: Mapping[str, str]) -> None: ...
    def unload(self, topic: str) -> None: ...
    def delete_old(self, topic: str) -> int: ...
    def move_clock(self, now_ms: int) -> None: ...
    def die(self, dying: Callable[[], None] | None, point: str = "") -> None:
        """Kills the broker at a crash point that is reached during `dying`, and restarts it."""
        ...

    def read(
        self, topic: str, offset: int | None, *, committed: bool
    ) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Returns offset, timestamp, key and value of each record, to the end."""
        ...

    def close(self) -> None: ...


class Product:
    """`door`: the access to the broker."""

    # Its logs end together.
    is_one_process = True

    def __init__(self, door: Door) -> None:
        self.door = door
        self.leaves_out = LEFT_OUT | door.leaves_out
        self._reset({})

    @property
    def now_ms(self) -> int | None:
        return self.door.now_ms

    def __str__(self) -> str:
        return f"the product {self.door.where}"

    def ask(self, request: Mapping[str, Any]) -> Json:
        handler = getattr(self, "_" + request["op"].replace("-", "_"))
        try:
            if request["op"] != "create" and request.get("log", "") not in ["", *self._logs]:
                raise TopicNotFound(request["log"])
            return {**(handler(request) or {}), "ok": True}
        except LedgerfoldError as error:
            return {"ok": False, "error": _name_of(error), "message": str(error)}

    def close(self) -> None:
        self.door.close()

    def _call(self, name: str, kind: Any, log: str = "", **fields: Any) -> Any:
        return self.door.call(name, kind(topic=log, **fields))

    # The world

    def _reset(self, request: Mapping[str, Any]) -> None:
        keys = request.get("keys")
        if keys is None:
            self._slots = request.get("dedupeBufferBytes", _DEFAULT_MAP_BYTES) // _MAP_ENTRY_BYTES
            keys = int(self._slots * request.get("loadFactor", _LOAD_FACTOR))
        else:
            self._slots = 2 * keys
        slots = max(_MAP_SLOTS, 2 * keys)
        self._now_ms = request.get("clock", self.door.now_ms or 0)
        self._held: dict[str, int] = {}
        self._logs: list[str] = []
        config = {
            "log.cleaner.dedupe.buffer.size": str(slots * _MAP_ENTRY_BYTES),
            "log.cleaner.io.buffer.load.factor": str((keys + 0.5) / slots),
            "producer.id.expiration.ms": str(request.get("producerIdExpirationMs", _EXPIRATION_MS)),
        }
        self.door.begin(config, self._now_ms)

    def _clock(self, request: Mapping[str, Any]) -> Json:
        self._now_ms = request.get("set", self._now_ms + request.get("advance", 0))
        self.door.move_clock(self._now_ms)
        return {"now": self._now_ms}

    def _create(self, request: Mapping[str, Any]) -> None:
        self.door.create(request["log"], request.get("config") or {})
        self._logs.append(request["log"])

    def _config(self, request: Mapping[str, Any]) -> None:
        changes = request["config"]
        self._call(
            "SetKafkaConfig",
            kafka_pb2.SetKafkaConfigRequest,
            request["log"],
            set={name: text for name, text in changes.items() if text is not None},
            unset=[name for name, text in changes.items() if text is None],
        )

    # A log

    def _append(self, request: Mapping[str, Any]) -> Json:
        records, at = request["records"], request.get("at", -1)
        batches = list[bytes]()
        for some in [records] if request.get("batch") else [[each] for each in records]:
            batches.append(self._batch(request, some, at))
            if at >= 0:
                at = read_batch_header(batches[-1]).next_offset
        origin = "replication" if at >= 0 else request.get("origin", "client")
        told = self._call(
            "Append",
            kafka_pb2.KafkaAppendRequest,
            request["log"],
            batches=b"".join(batches),
            origin=_ORIGINS[origin],
        )
        pairs = zip(told.first_offsets, told.last_offsets, strict=True)
        return {"batches": [list(each) for each in pairs]}

    def _batch(self, request: Mapping[str, Any], records: Sequence[Json], at: int) -> bytes:
        offset = base = max(at, 0)
        made = []
        for record in records:
            offset = record.get("offset", offset)
            key, value = field_of(record, "key"), field_of(record, "value")
            time_ms = record.get("timestamp", self._now_ms)
            made.append(KafkaRecord(offset, time_ms, key, value))
            offset += 1
        pid = request.get("pid", -1)
        batch = build_batch(
            made,
            base_offset=base,
            compression=KafkaCompression[request.get("codec", "none").upper()],
            producer_id=pid,
            producer_epoch=request.get("epoch", -1 if pid < 0 else 0),
            base_sequence=-1 if pid < 0 else request["sequence"],
            is_transactional=request.get("transactional", False),
        )
        if "last" not in request:
            return batch
        header = read_batch_header(batch)._replace(last_offset_delta=request["last"] - base)
        return sealed(header, batch[BATCH_HEADER_BYTES:])

    def _marker(self, request: Mapping[str, Any]) -> Json:
        told = self._call(
            "EndTransaction",
            kafka_pb2.EndTransactionRequest,
            request["log"],
            producer_id=request["pid"],
            producer_epoch=request.get("epoch", 0),
            commit=request["type"] == "commit",
            timestamp_ms=request.get("timestamp", self._now_ms),
        )
        return {"offset": told.first_offsets[0]}

    def _roll(self, request: Mapping[str, Any]) -> None:
        self._call("RollSegment", kafka_pb2.RollSegmentRequest, request["log"])

    def _high_watermark(self, request: Mapping[str, Any]) -> None:
        log, offset = request["log"], request.get("offset")
        self._held.pop(log, None)
        if offset is not None:
            self._held[log] = offset
        self._call("SetHighWatermark", kafka_pb2.SetHighWatermarkRequest, log, offset=offset)

    def _log_start(self, request: Mapping[str, Any]) -> Json:
        before = self._describe(request).log_start_offset
        fields = {"offset": request["offset"], "as_follower": True}
        told = self._call("SetLogStart", kafka_pb2.SetLogStartRequest, request["log"], **fields)
        return {"moved": told.log_start_offset > before}

    def _truncate(self, request: Mapping[str, Any]) -> None:
        log, offset = request["log"], request["offset"]
        self._call("TruncateLog", kafka_pb2.TruncateLogRequest, log, offset=offset)

    def _reopen(self, request: Mapping[str, Any]) -> None:
        if request.get("clean", True):
            self.door.unload(request["log"])
            self._remember()
        else:
            self._die(None)

    def _die(self, dying: Callable[[], None] | None, point: str = "") -> None:
        self.door.die(dying, point)
        self._remember()

    def _remember(self) -> None:
        for log, offset in self._held.items():
            self._call("SetHighWatermark", kafka_pb2.SetHighWatermarkRequest, log, offset=offset)

    # The cleaner

    def _plan(self, request: Mapping[str, Any]) -> Json:
        (plan,) = self._plans([request["log"]])
        return {
            **_described(plan),
            "firstUncleanable": plan.first_uncleanable_offset,
            "repair": plan.repairs_checkpoint,
            "delayMs": plan.delay_ms,
        }

    def _plans(self, logs: Sequence[str]) -> Sequence[kafka_pb2.CleaningPlan]:
        told = self.door.call("PlanCleaning", kafka_pb2.PlanCleaningRequest(topics=logs))
        plans: Sequence[kafka_pb2.CleaningPlan] = told.plans
        return plans

    def _choice(self, preferred: str | None) -> str:
        """Returns the log to request: "" leaves the choice to the broker; Kafka's choice is
        random.
        """
        plans = self._plans(self._logs) if self._logs else []
        eligible = {_log_of(each.topic): each.ratio for each in plans if each.is_eligible}
        ratio = max(eligible.values(), default=0.0)
        if preferred is not None and eligible.get(preferred) == ratio:
            return preferred
        return ""

    def _clean(self, request: Mapping[str, Any]) -> Json:
        hooks = [op for hook in request.get("during", ()) for op in hook["ops"]]

        def during() -> None:
            for op in hooks:
                self.ask(op)

        asked = kafka_pb2.CleanTurnRequest(topic=self._choice(request.get("preferred")))
        turn = self.door.clean(asked, during if hooks else None)
        answer: Json = {
            "log": _log_of(turn.topic) if turn.topic else None,
            "checkpoint": self._checkpoints(),
        }
        if not turn.topic:
            return answer
        answer |= {**_described(turn.plan), "aborted": turn.was_aborted}
        answer["endOffset"] = turn.end_offset if turn.HasField("stats") else answer["firstDirty"]
        if turn.failure:
            answer["failure"] = {"error": _FAILURES.get(turn.failure_kind, turn.failure)}
        if turn.HasField("stats"):
            answer["stats"] = self._stats(turn.stats)
        return answer

    def _stats(self, stats: kafka_pb2.CleaningStats) -> Json:
        return {
            "mapMessagesRead": stats.map_messages_read,
            "messagesRead": stats.messages_read,
            "messagesWritten": stats.messages_written,
            "invalidMessagesRead": stats.invalid_messages_read,
            "bytesRead": stats.bytes_read,
            "bytesWritten": stats.bytes_written,
            "mapUtilization": stats.map_keys / self._slots,
        }

    def _crash(self, request: Mapping[str, Any]) -> Json:
        """Runs a cleaning during which the broker dies: the result is the state before or
        after it.
        """
        log = request["log"]
        chosen = self._choice(request.get("preferred"))
        asked = kafka_pb2.CleanTurnRequest(topic=chosen)
        if chosen != log:
            self.door.clean(asked, None)
            raise InvalidRequest("another log was chosen")
        point = "clean.before-batch" if request["point"] == "writing" else "clean.after-batch"

        def dying() -> None:
            self.door.clean(asked, None)

        self._die(dying, point)
        return {}

    def _retention(self, request: Mapping[str, Any]) -> Json:
        told = self.door.call("RunRetention", kafka_pb2.RunRetentionRequest())
        return {"deleted": told.deleted_segments}

    def _delete_old(self, request: Mapping[str, Any]) -> Json:
        return {"deleted": self.door.delete_old(request["log"])}

    def _act(self, log: str, action: str) -> None:
        self._call("SetCleaning", kafka_pb2.SetCleaningRequest, log, action=action)

    def _pause(self, request: Mapping[str, Any]) -> None:
        self._act(request["log"], "abort-and-pause")

    def _resume(self, request: Mapping[str, Any]) -> None:
        self._act(request["log"], "resume")

    def _state(self, request: Mapping[str, Any]) -> Json:
        told = self.door.call("GetCleaner", kafka_pb2.GetCleanerRequest())
        states = {_log_of(name): state for name, state in told.states.items()}
        _, _, count = states.get(request["log"], "").partition("=")
        return {"state": f"paused {count.strip('}')}" if count else "none"}

    def _checkpoints(self) -> dict[str, int]:
        told = {log: self._described_log(log) for log in self._logs}
        return {log: each.checkpoint for log, each in told.items() if each.HasField("checkpoint")}

    def _checkpoint(self, request: Mapping[str, Any]) -> Json:
        return {"offsets": self._checkpoints()}

    def _checkpoint_set(self, request: Mapping[str, Any]) -> None:
        offset = request["offset"]
        self._call("SetCleaning", kafka_pb2.SetCleaningRequest, request["log"], checkpoint=offset)

    # Present state

    def _describe(self, request: Mapping[str, Any]) -> kafka_pb2.DescribeLogResponse:
        return self._described_log(request["log"])

    def _described_log(self, log: str, batches: bool = False) -> kafka_pb2.DescribeLogResponse:
        told: kafka_pb2.DescribeLogResponse = self._call(
            "DescribeLog", kafka_pb2.DescribeLogRequest, log, batches=batches
        )
        assert not told.HasField("more_from"), "a scenario's log is smaller than a page"
        return told

    def _info(self, request: Mapping[str, Any]) -> Json:
        log = self._describe(request)
        return {
            "start": log.log_start_offset,
            "end": log.log_end_offset,
            "highWatermark": log.high_watermark,
            "lastStable": log.last_stable_offset,
            "active": log.segments[-1].base_offset,
            "size": sum(segment.size_bytes for segment in log.segments),
        }

    def _segments(self, request: Mapping[str, Any]) -> Json:
        return {
            "segments": [
                {
                    "base": segment.base_offset,
                    "size": segment.size_bytes,
                    "largestTimestamp": segment.largest_timestamp_ms,
                    "modified": segment.modified_ms,
                    "offsetIndexBytes": segment.offset_index_bytes,
                    "timeIndexBytes": segment.time_index_bytes,
                }
                for segment in self._describe(request).segments
            ]
        }

    def _batches(self, request: Mapping[str, Any]) -> Json:
        log = self._described_log(request["log"], batches=True)
        told = [told_batch(each.batch) for each in log.batches]
        return {"batches": [{**each, "segment": _base(log, each["last"])} for each in told]}

    def _aborted(self, request: Mapping[str, Any]) -> Json:
        log = self._describe(request)
        return {
            "transactions": [
                {
                    "pid": each.producer_id,
                    "first": each.first_offset,
                    "last": each.last_offset,
                    "segment": _base(log, each.last_offset),
                }
                for each in log.aborted
            ]
        }

    def _producers(self, request: Mapping[str, Any]) -> Json:
        known = self._describe(request).producers
        return {"lastSequences": {str(each.producer_id): each.last_sequence for each in known}}

    def _read(self, request: Mapping[str, Any]) -> Json:
        committed = request.get("isolation") == "committed"
        records = self.door.read(request["log"], request.get("offset"), committed=committed)
        return {"records": [told_record(*record) for record in records]}


def _described(plan: kafka_pb2.CleaningPlan) -> Json:
    total = plan.clean_bytes + plan.cleanable_bytes
    return {
        "log": _log_of(plan.topic),
        "firstDirty": plan.first_dirty_offset,
        "bound": plan.bound_offset,
        "cleanBytes": plan.clean_bytes,
        "cleanableBytes": plan.cleanable_bytes,
        "overdue": plan.is_overdue,
        "ratio": plan.ratio if total else None,
    }


def _log_of(topic: str) -> str:
    return topic.rpartition("/")[2].rpartition(".")[2]


def _base(log: kafka_pb2.DescribeLogResponse, offset: int) -> int:
    """Returns the base offset of the segment that contains it."""
    return max(each.base_offset for each in log.segments if each.base_offset <= offset)


def _name_of(error: LedgerfoldError) -> str:
    """Returns the class of Kafka's error."""
    if isinstance(error, KafkaError):
        return error.kafka_class
    if isinstance(error, TopicNotFound):
        return "IllegalArgumentException"
    return "IllegalStateException" if isinstance(error, InvalidRequest) else type(error).__name__
