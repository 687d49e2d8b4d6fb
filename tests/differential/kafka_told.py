"""Batches and records in the kafka-oracle's form.

>>> from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
>>> told = told_batch(build_batch([KafkaRecord(4, 9, b"a", None)], base_offset=4))
>>> told["base"], told["codec"], told["records"]
(4, 'none', [{'offset': 4, 'timestamp': 9, 'key': 'a', 'value': None}])
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from ledgerfold.storage.kafka.batch import TimestampType, read_batch_header
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import ControlType, marker_type, records_of

Json = dict[str, Any]


def told_batch(batch: bytes) -> Json:
    """Compressed bytes become a token: bytes that are unchanged here must be unchanged there."""
    header = read_batch_header(batch)
    codec = KafkaCompression(header.compression)
    is_append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    records = list(records_of(batch))
    answer: Json = {
        "base": header.base_offset,
        "last": header.last_offset,
        "magic": header.magic,
        "size": header.size_bytes,
        "maxTimestamp": header.max_timestamp_ms,
        "timestampType": "LogAppendTime" if is_append_time else "CreateTime",
        "codec": codec.name.lower(),
        "transactional": header.is_transactional,
        "control": header.is_control,
        "horizon": header.delete_horizon_ms,
        "records": [told_record(each.offset, *each[1:4]) for each in records],
    }
    checksum = hashlib.md5(batch).hexdigest()
    answer["md5" if codec is KafkaCompression.NONE else "token"] = checksum
    if header.has_producer:
        answer |= {"pid": header.producer_id, "epoch": header.producer_epoch}
        answer |= {"baseSequence": header.base_sequence, "lastSequence": header.last_sequence}
    if header.is_control and records:
        answer["marker"] = "abort" if marker_type(batch) == ControlType.ABORT else "commit"
    return answer


def told_record(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> Json:
    return {
        "offset": offset,
        "timestamp": timestamp_ms,
        **_text("key", key),
        **_text("value", value),
    }


def _text(name: str, field: bytes | None) -> Json:
    if field is None:
        return {name: None}
    try:
        return {name: field.decode()}
    except UnicodeDecodeError:
        return {f"{name}B64": base64.b64encode(field).decode()}
