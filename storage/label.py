"""A ledger's label: a small file in its folder that names its topic, in case the metadata are lost.

    >>> from ledgerfold.storage.files import REAL
    >>> record = LedgerRecord(ledger_id=7, kind=LEDGER_KIND_RAW, topic="persistent://a/b/t")
    >>> write_label(folder, label_of(record), REAL)
    >>> read_label(folder, REAL).topic
    'persistent://a/b/t'

Rules (docs/FORMATS.md, "Label"):

1. A raw ledger gets its label before its first entry. A ledger that a truncation creates gets it
   when it is complete.
2. A compacted ledger gets its label once its files are verified, before the write that publishes
   it. The label contains the records of that write, so that the ledger can be restored: the
   ledger's record, and that of the run or of the Kafka log's segment.
3. Nothing reads labels while the metadata are intact. If they are not, a start finds the affected
   topics by their labels (storage/losses.py), and a repair restores ledgers from them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from ledgerfold.storage.entry import crc32c
from ledgerfold.storage.errors import Corruption, LimitExceeded
from ledgerfold.storage.files import Files, write_file
from ledgerfold.storage.limits import LABEL_BYTES_MAX
from ledgerfold.storage.names import LABEL
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LEDGER_KIND_RAW,
    RUN_STATE_SUCCESS,
    KafkaSegment,
    LedgerKind,
    LedgerRecord,
    RunRecord,
    TopicRecord,
)

LABEL_VERSION = 1
_KINDS = {"raw": LEDGER_KIND_RAW, "compacted": LEDGER_KIND_COMPACTED}
_KIND_NAMES = {kind: name for name, kind in _KINDS.items()}

M = TypeVar("M", bound=Message)


class Label(NamedTuple):
    """The label of a ledger. `partitions` of its partitioned topic when it was written; 0: none.

    `record`, `run`, `segment`: a compacted ledger's record, and the records that publish it.
    """

    ledger_id: int
    kind: LedgerKind
    topic: str
    created_ms: int
    partitions: int = 0
    record: LedgerRecord | None = None
    run: RunRecord | None = None
    segment: KafkaSegment | None = None


def label_of(
    record: LedgerRecord,
    *,
    partitions: int = 0,
    run: RunRecord | None = None,
    segment: KafkaSegment | None = None,
) -> Label:
    """Returns the label of the ledger with that record."""
    is_compacted = record.kind == LEDGER_KIND_COMPACTED
    return Label(
        ledger_id=record.ledger_id,
        kind=record.kind,
        topic=record.topic,
        created_ms=record.created_ms,
        partitions=partitions,
        record=record if is_compacted else None,
        run=run,
        segment=segment,
    )


def label_in_place(
    record: LedgerRecord, topic: TopicRecord, runs: Iterable[RunRecord], partitions: int
) -> Label:
    """Returns the label of a ledger that its topic's record names."""
    ledger_id = record.ledger_id
    if record.kind != LEDGER_KIND_COMPACTED:
        return label_of(record, partitions=partitions)
    for segment in topic.kafka.segments:
        if ledger_id in segment.ledger_ids:
            return label_of(record, partitions=partitions, segment=segment)
    if not topic.HasField("compacted") or topic.compacted.ledger_id != ledger_id:
        return label_of(record, partitions=partitions)
    number = topic.compacted.run_number
    rebuilt = RunRecord(
        topic=topic.name, number=number, state=RUN_STATE_SUCCESS, ledger_id=ledger_id
    )
    rebuilt.horizon.CopyFrom(topic.compacted.horizon)
    run = next((each for each in runs if each.number == number), rebuilt)
    return label_of(record, partitions=partitions, run=run)


def write_label(ledger_dir: Path, label: Label, files: Files) -> None:
    """Replaces the folder's label. Durable once the folder is synced.

    Raises DiskFailure, LimitExceeded.
    """
    data = _encode(label)
    if len(data) > LABEL_BYTES_MAX:
        raise LimitExceeded(
            f"Bytes of the label of ledger {label.ledger_id}",
            len(data),
            LABEL_BYTES_MAX,
            "Restart the broker with a larger --segment-size: it writes fewer segments.",
        )
    files.remove(ledger_dir / LABEL)
    write_file(ledger_dir / LABEL, [data], files)


def write_first_label(ledger_dir: Path, label: Label, files: Files) -> None:
    """Writes the label of a folder that has none, as write_label does."""
    write_file(ledger_dir / LABEL, [_encode(label)], files)


def read_label(ledger_dir: Path, files: Files) -> Label | None:
    """Returns the folder's label; None if it has none. Raises Corruption, DiskFailure."""
    path = ledger_dir / LABEL
    try:
        with closing(files.open_read(path)) as file:
            data = file.pread(min(file.size_bytes, LABEL_BYTES_MAX), 0)
    except FileNotFoundError:
        return None
    try:
        return _decode(data)
    except (ValueError, KeyError, TypeError, DecodeError) as error:
        raise Corruption(str(path), 0, "a ledger's label", repr(error)) from error


def _encode(label: Label) -> bytes:
    content: dict[str, Any] = {
        "version": LABEL_VERSION,
        "ledger": label.ledger_id,
        "kind": _KIND_NAMES[label.kind],
        "topic": label.topic,
        "created_ms": label.created_ms,
    }
    if label.partitions:
        content["partitions"] = label.partitions
    records = {"record": label.record, "run": label.run, "segment": label.segment}
    for name, message in records.items():
        if message is not None:
            content[name] = base64.b64encode(message.SerializeToString()).decode()
    line = json.dumps(content).encode()
    return line + b"\n" + _checksum(line)


def _decode(data: bytes) -> Label:
    line, _, checksum = data.partition(b"\n")
    if checksum != _checksum(line):
        raise ValueError("its checksum does not match")
    content = json.loads(line)
    if content["version"] != LABEL_VERSION:
        raise ValueError(f"version {content['version']}")

    def message(name: str, kind: type[M]) -> M | None:
        if name not in content:
            return None
        return kind.FromString(base64.b64decode(content[name], validate=True))

    return Label(
        ledger_id=content["ledger"],
        kind=_KINDS[content["kind"]],
        topic=content["topic"],
        created_ms=content["created_ms"],
        partitions=content.get("partitions", 0),
        record=message("record", LedgerRecord),
        run=message("run", RunRecord),
        segment=message("segment", KafkaSegment),
    )


def _checksum(line: bytes) -> bytes:
    return b"%08x\n" % crc32c(line)
