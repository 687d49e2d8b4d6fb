"""Builds a batch from a request, and decides whether a leader accepts it.

>>> batch = batch_of({"records": [{"key": "a"}]}, [{"key": "a"}], now_ms=5)
>>> batch.records[0].value is None, batch.max_timestamp
(True, 5)
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.model.kafka.batches import (
    ABORT,
    COMMIT,
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Batch,
    Record,
)
from tests.model.kafka.producers import Refused
from tests.model.kafka.settings import TopicSettings

Json = Mapping[str, Any]
_TYPES = {ABORT: b"\x00\x00", COMMIT: b"\x00\x01"}


def field_of(record: Json, name: str) -> bytes | None:
    if record.get(f"{name}B64") is not None:
        return base64.b64decode(record[f"{name}B64"])
    if record.get(f"{name}Bytes") is not None:
        return b"x" * int(record[f"{name}Bytes"])
    text = record.get(name)
    return None if text is None else str(text).encode()


def batch_of(request: Json, records: Sequence[Json], now_ms: int, at: int = -1) -> Batch:
    """`at`: the first offset, if the request has offsets as a follower's fetch does."""
    base = max(at, 0)
    made: list[Record] = []
    offset = base
    for record in records:
        offset = record.get("offset", offset)
        time_ms = record.get("timestamp", now_ms)
        made.append(Record(offset, time_ms, field_of(record, "key"), field_of(record, "value")))
        offset += 1
    pid = request.get("pid", -1)
    is_append_time = request.get("logAppendTime", False)
    return Batch(
        base,
        request.get("last", offset - 1),
        tuple(made),
        request.get("codec", "none"),
        LOG_APPEND_TIME if is_append_time else CREATE_TIME,
        made[0].timestamp,
        now_ms if is_append_time else max(record.timestamp for record in made),
        pid=pid,
        epoch=request.get("epoch", -1 if pid < 0 else 0),
        base_sequence=-1 if pid < 0 else request["sequence"],
        transactional=request.get("transactional", False),
    )


def marker_of(request: Json, now_ms: int) -> Batch:
    time_ms = request.get("timestamp", now_ms)
    kind = request["type"]
    record = Record(0, time_ms, b"\x00\x00" + _TYPES[kind], bytes(6))
    return Batch(
        0,
        0,
        (record,),
        base_timestamp=time_ms,
        max_timestamp=time_ms,
        pid=request["pid"],
        epoch=request.get("epoch", 0),
        transactional=True,
        marker=kind,
        control=True,
    )


def numbered(batch: Batch, base: int) -> Batch:
    """Returns the same batch from this offset on, dense."""
    records = tuple(each._replace(offset=base + n) for n, each in enumerate(batch.records))
    return replace(batch, base=base, last=base + len(records) - 1, records=records)


def taken_by_leader(batch: Batch, settings: TopicSettings, now_ms: int) -> Batch:
    """Returns the batch as a leader stores it. Raises Refused: a batch is accepted completely or
    not at all.
    """
    keyless = [settings.compact and record.key is None for record in batch.records]
    if settings.append_time:
        batch = replace(batch, timestamp_type=LOG_APPEND_TIME, max_timestamp=now_ms)
    elif batch.timestamp_type == LOG_APPEND_TIME or any(
        not is_keyless and _is_out_of_time(record, settings, now_ms)
        for record, is_keyless in zip(batch.records, keyless, strict=True)
    ):
        raise Refused("InvalidTimestampException")
    if any(keyless):
        raise Refused("InvalidRecordException")
    return batch


def _is_out_of_time(record: Record, settings: TopicSettings, now_ms: int) -> bool:
    """A record without a timestamp is never out of bounds. A record is refused for one reason, a
    missing key first.
    """
    ahead_ms = record.timestamp - now_ms
    is_within = -settings.behind_ms <= ahead_ms <= settings.ahead_ms
    return record.timestamp != NO_TIMESTAMP and not is_within
