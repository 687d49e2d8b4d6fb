"""`export kafka-log`: writes a Kafka topic as a partition folder that Kafka can open.

    ledgerfold export kafka-log orders copies/orders-0 --checkpoints

Batches, segments and times are the topic's; indexes are rebuilt (storage/kafka/folder_writer.py).
Cleaning is paused during the export. Records appended after its start are not exported.
"""

from __future__ import annotations

import argparse
import base64
import re
import signal
import sys
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from ledgerfold.broker.cli.connecting import TOPIC, credentials_of
from ledgerfold.broker.cli.ending import Interrupts
from ledgerfold.broker.cli.verbs import Verbs, argument, flag
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
    from ledgerfold.broker.kafka.log.checkpoint_file import TopicPartition
    from ledgerfold.storage.kafka.folder_writer import FolderWriter, Producer
    from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
    from ledgerfold.v1.kafka_pb2 import DescribeLogResponse, KafkaProducerInfo

COMMANDS = Verbs()
EXPORT = COMMANDS.command(
    "export",
    "write a topic as a file, or in another system's format",
    title="kinds",
    metavar="KIND",
)
LOG_START_FILE = "log-start-offset-checkpoint"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
_ID = re.compile(r"[-_0-9A-Za-z]{22}")
# Kafka's rule for topic names; others would corrupt the checkpoint files next to the folder.
_FOLDER = re.compile(r"(?!\.{1,2}-\d+$)[-._0-9A-Za-z]{1,249}-\d{1,10}")


@EXPORT.verb("kafka-log", "write a Kafka topic as a partition folder", TOPIC)
@argument("folder DIR", "a new folder, named TOPIC-PARTITION")
@flag(
    "--checkpoints",
    "also record the log start, checkpoint and log end in the checkpoint files next to DIR",
)
@argument("--topic-id ID", "the id that kafka-topics.sh shows; default: a new one")
def _export(options: argparse.Namespace) -> None:
    from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs

    folder = absolute_path(options.folder)
    with Interrupts(signal.SIGTERM), KafkaLogs(options.url, **credentials_of(options)) as logs:
        log = export_folder(
            logs,
            options.topic,
            folder,
            topic_id=uuid4() if options.topic_id is None else _topic_id(options.topic_id),
            checkpoints=options.checkpoints,
        )
    print(
        f"{counted(len(log.segments), 'segment')} of "
        f"{sum(each.size_bytes for each in log.segments):,} bytes exported to {folder}: offsets "
        f"from {log.log_start_offset} to {log.log_end_offset}",
        file=sys.stderr,
    )
    first = log.segments[0].base_offset
    if log.log_start_offset > first and not options.checkpoints:
        print(
            f"ledgerfold: {folder} itself starts at offset {first}: without --checkpoints, Kafka "
            f"does not get the log start offset {log.log_start_offset}.",
            file=sys.stderr,
        )


def export_folder(
    logs: KafkaLogs, topic: str, folder: Path, *, topic_id: UUID, checkpoints: bool = False
) -> DescribeLogResponse:
    """Exports a log. Returns its description. Raises InvalidRequest, DiskFailure, ServiceError."""
    from ledgerfold.storage.kafka.folder_writer import FolderWriter

    if not _FOLDER.fullmatch(folder.name):
        raise InvalidRequest(
            f"{folder}: the name must be TOPIC-PARTITION, such as orders-0: at most 249 letters, "
            "digits, '.', '_' and '-', and a number."
        )
    if checkpoints:
        # Damage in them must be reported before the folder is created.
        _read_checkpoints(folder)
    with Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
        # The broker pauses the log all the same.
        interrupts.is_held = True
        logs.pause_cleaning(topic)
    try:
        interrupts.check()
        log = logs.describe(topic)
        interval_bytes = int(logs.config(topic)["index.interval.bytes"].value)
        with FolderWriter(folder, topic_id=topic_id, index_interval_bytes=interval_bytes) as writer:
            _write(writer, log, logs, topic)
    finally:
        logs.resume_cleaning(topic)
    if checkpoints:
        write_checkpoints(folder, log)
    return log


def _write(writer: FolderWriter, log: DescribeLogResponse, logs: KafkaLogs, topic: str) -> None:
    from ledgerfold.storage.kafka.batch import read_batch_header

    bases = [each.base_offset for each in log.segments]
    aborted = _aborted_by_segment(log, bases)

    def end(number: int) -> None:
        modified_ms = log.segments[number].modified_ms
        writer.end_segment(modified_ms=modified_ms, aborted=aborted[number])

    at = 0
    writer.begin_segment(bases[0])
    for batch in logs.batches(topic):
        offset = read_batch_header(batch).base_offset
        if offset >= log.log_end_offset:
            break
        while at + 1 < len(bases) and offset >= bases[at + 1]:
            end(at)
            at += 1
            writer.begin_segment(bases[at])
        writer.append(batch)
    end(at)
    for number in range(at + 1, len(bases)):
        writer.begin_segment(bases[number])
        end(number)
    # Kafka would load the other producers, and expire them at once.
    known = (each for each in log.producers if not each.is_forgotten)
    writer.write_snapshot(map(_producer, known), log.log_end_offset)


def _producer(info: KafkaProducerInfo) -> Producer:
    from ledgerfold.storage.kafka.folder_writer import Producer

    return Producer(
        info.producer_id,
        info.producer_epoch,
        info.last_sequence,
        info.last_data_offset,
        info.last_offset_delta,
        info.last_timestamp_ms,
        info.coordinator_epoch,
        info.transaction_first_offset,
    )


def _aborted_by_segment(
    log: DescribeLogResponse, bases: Sequence[int]
) -> list[list[AbortedTransaction]]:
    """Assigns each aborted transaction to the segment of its marker."""
    from ledgerfold.storage.kafka.transaction_index import AbortedTransaction

    by_segment: list[list[AbortedTransaction]] = [[] for _ in bases]
    for each in log.aborted:
        at = max(bisect_right(bases, each.last_offset) - 1, 0)
        by_segment[at].append(AbortedTransaction.of(each))
    return by_segment


def write_checkpoints(folder: Path, log: DescribeLogResponse) -> None:
    """Updates the partition's entries in the checkpoint files next to the folder.

    Exports of other partitions wait meanwhile, or one would write the entries as another read them.
    """
    from ledgerfold.broker.kafka.log.checkpoint_file import (
        CHECKPOINT_FILE,
        TopicPartition,
        checkpoint_text,
    )
    from ledgerfold.storage.files import replace_file
    from ledgerfold.storage.kafka.folder import partition_of
    from ledgerfold.storage.lock import locked_folder

    partition = TopicPartition(*partition_of(folder))
    first = log.segments[0].base_offset
    offsets = {
        CHECKPOINT_FILE: log.checkpoint if log.HasField("checkpoint") else None,
        # Kafka stores a start only if it is not the first segment's.
        LOG_START_FILE: log.log_start_offset if log.log_start_offset > first else None,
        RECOVERY_POINT_FILE: log.log_end_offset,
    }
    parent = folder.resolve().parent
    with locked_folder(parent):
        for name, known in _read_checkpoints(folder).items():
            known.pop(partition, None)
            offset = offsets[name]
            if offset is not None:
                known[partition] = offset
            replace_file(parent / name, [checkpoint_text(known).encode()])


def _read_checkpoints(folder: Path) -> dict[str, dict[TopicPartition, int]]:
    from ledgerfold.broker.kafka.log.checkpoint_file import CHECKPOINT_FILE

    names = (CHECKPOINT_FILE, LOG_START_FILE, RECOVERY_POINT_FILE)
    return {name: read_checkpoint_file(folder, name) for name in names}


def read_checkpoint_file(folder: Path, name: str) -> dict[TopicPartition, int]:
    """Reads a checkpoint file next to the folder. Raises Corruption, OSError."""
    from ledgerfold.broker.kafka.log.checkpoint_file import read_checkpoint

    path = folder.resolve().parent / name
    return read_checkpoint(path.read_text("utf-8", "replace") if path.exists() else "", name)


def _topic_id(text: str) -> UUID:
    """Parses a topic id.

    >>> _topic_id("AAAAAAAAAAAAAAAAAAAABw").int
    7
    """
    if not _ID.fullmatch(text):
        raise InvalidRequest(
            f"--topic-id {text}: expected 22 letters, digits, - and _, as Kafka prints it."
        )
    return UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))
