"""Kafka's cleaner-offset-checkpoint: the clean point of each log of a folder, as text.

    >>> print(checkpoint_text({TopicPartition("orders", 0): 1734}), end="")
    0
    1
    orders 0 1734
    >>> read_checkpoint("0\\n1\\norders 0 1734\\n", "cleaner-offset-checkpoint")
    {TopicPartition(topic='orders', partition=0): 1734}

The first line is the format's version, the second the number of entries. A file with no lines, or
without the second line, has no entries. Any other defect is a Corruption. Kafka 4.1.0's cleaner
thread dies on a field that is not a number, or on a negative count; this is not reproduced.

Source: CheckpointFile, OffsetCheckpointFile, LogCleanerManager.updateCheckpoints and
maybeTruncateCheckpoint of Kafka 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ledgerfold.broker.common.names import TopicName
from ledgerfold.broker.kafka.config.settings import INT_MAX, LONG_MAX
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.v1.records_pb2 import TopicRecord

CHECKPOINT_FILE = "cleaner-offset-checkpoint"
_VERSION = 0
_NUMBER = re.compile(r"[+-]?\d+")
_LINE_END = re.compile(r"(\r\n|\r|\n)")
_BLANKS = re.compile(r"\s+", re.ASCII)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_partition(name: str) -> TopicPartition:
    """Returns Kafka's name of a topic's partition.

    >>> str(topic_partition("persistent://public/default/orders-partition-3"))
    'orders-3'
    >>> str(topic_partition("persistent://public/default/orders"))
    'orders-0'
    """
    partition = parse_partition(name)
    if partition is None:
        return TopicPartition(TopicName.parse(name).local, 0)
    return TopicPartition(TopicName.parse(partition.topic).local, partition.index)


class StoredCheckpoints(NamedTuple):
    """The file's text. `shared`: lines that topics of several namespaces share; the last topic's
    counts.
    """

    text: str
    shared: list[str]


def stored_checkpoints(records: Iterable[TopicRecord], namespace: str = "") -> StoredCheckpoints:
    """Returns the file for these topics, of one namespace or of all; Kafka's names have no
    namespaces.

    >>> names = ("persistent://a/b/orders", "persistent://public/default/orders")
    >>> records = [TopicRecord(name=each) for each in names]
    >>> for record in records:
    ...     record.kafka.first_dirty_offset = 7
    >>> stored_checkpoints(records).shared, stored_checkpoints(records, "a/b").shared
    (['orders 0'], [])
    """
    offsets, shared = dict[TopicPartition, int](), list[str]()
    for record in sorted(records, key=lambda each: each.name):
        if not record.kafka.HasField("first_dirty_offset"):
            continue
        if namespace in ("", TopicName.parse(record.name).namespace):
            at = topic_partition(record.name)
            if at in offsets:
                shared.append(f"{at.topic} {at.partition}")
            offsets[at] = record.kafka.first_dirty_offset
    return StoredCheckpoints(checkpoint_text(offsets), shared)


def checkpoint_text(offsets: Mapping[TopicPartition, int]) -> str:
    lines = [str(_VERSION), str(len(offsets))]
    lines += [f"{at.topic} {at.partition} {offset}" for at, offset in offsets.items()]
    return "\n".join(lines) + "\n"


def read_checkpoint(text: str, path: str) -> dict[TopicPartition, int]:
    """Parses a file. A partition's last entry counts. Raises Corruption, which names `path`."""
    lines = _lines(text)
    if not lines:
        return {}
    at, line = lines[0]
    version = _number(line, INT_MAX, path, at)
    if version != _VERSION:
        raise Corruption(path, at, f"version {_VERSION}", f"version {version}")
    if len(lines) == 1:
        return {}
    (at, line), *entries = lines[1:]
    count = _number(line, INT_MAX, path, at)
    if count != len(entries):
        raise Corruption(path, at, f"{len(entries)} as the number of entries", str(count))
    offsets = {}
    for at, line in entries:
        # Java's split: leading blanks make an empty first field.
        fields = _BLANKS.split(line.rstrip())
        if len(fields) != 3 or not fields[0]:
            raise Corruption(path, at, "topic, partition and offset", repr(line))
        log = TopicPartition(fields[0], _number(fields[1], INT_MAX, path, at))
        offsets[log] = _number(fields[2], LONG_MAX, path, at)
    return offsets


def truncated(checkpoint: int, active_base_offset: int) -> int:
    """Returns a compacted log's checkpoint after truncation below its active segment.

    `active_base_offset`: the base offset of the new active segment.
    """
    return min(checkpoint, active_base_offset)


def _lines(text: str) -> list[tuple[int, str]]:
    """Splits into lines, with the byte at which each begins. Only \\r, \\n and \\r\\n end one, as
    in Java.
    """
    lines, at = [], 0
    for line, end in zip(*[iter([*_LINE_END.split(text), ""])] * 2, strict=True):
        if line or end:
            lines.append((at, line))
        at += len((line + end).encode())
    return lines


def _number(text: str, largest: int, path: str, at: int) -> int:
    if not _NUMBER.fullmatch(text) or not -largest - 1 <= int(text) <= largest:
        raise Corruption(path, at, "a number", repr(text))
    return int(text)
