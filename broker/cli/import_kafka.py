"""`import kafka-log`: a Kafka partition's folder as a topic, batch for batch.

    ledgerfold import kafka-log copies/orders-0 --config min.cleanable.dirty.ratio=0.2

The folder is a copy of what lies in a broker's log directory, and is only read; the checkpoints
that lie beside it are taken along if they are there. The topic's segments are the partition's, with
their offsets, their gaps, their transaction indexes, and the times at which they were last written
to; what a crash of Kafka's left there half-way is reckoned with as Kafka itself would
(storage/kafka/folder.py). Settings are not in the folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.cli.ending import interruptible
from ledgerfold.broker.cli.exit_codes import DONE
from ledgerfold.broker.cli.exporting import LOG_START_FILE
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.words import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client.kafka_logs import KafkaLogs
    from ledgerfold.storage.kafka.folder import SegmentFile, TornTail

KAFKA_LOG = "kafka-log"
# How many bytes of batches are sent at once, beside one that is larger.
_FRAME_BYTES = 4 * 1024 * 1024
# And entries of a transaction index.
_INDEX_ENTRIES = 10_000
_ROWS_ONLY = ("key", "value", "format", "event_time", "tombstone_when")


class Imported(NamedTuple):
    """`checkpoint`: where the next cleaning starts; None: none was stored."""

    segments: int
    batches: int
    size_bytes: int
    start_offset: int
    end_offset: int
    checkpoint: int | None
    torn: TornTail | None
    # What else is to be known of it, in sentences.
    notes: Sequence[str] = ()


class Checkpoints(NamedTuple):
    """What lies beside a partition's folder says of it."""

    first_dirty_offset: int | None
    log_start_offset: int | None


def add_kafka_log(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "import kafka-log DIR",
        "a Kafka partition's folder, such as DIR/orders-0; it is only read",
    )
    group.add_argument("folder", nargs="?", metavar="DIR", help="--topic: default its name")
    group.add_argument(
        "--cleanup-policy", metavar="POLICY", help="compact (the default), delete, or both"
    )
    group.add_argument(
        "--config",
        action="append",
        metavar="K=V",
        help="a setting of the topic, by Kafka's name; may be given several times",
    )
    group.add_argument(
        "--config-file",
        type=absolute_path,
        metavar="FILE",
        help="the topic's settings, as kafka-configs.sh --describe shows them, or lines K=V; "
        "--config comes before them",
    )
    group.add_argument(
        "--paused", action="store_true", help="leave the cleaner paused on the topic afterwards"
    )


def refuse_kafka_options(options: argparse.Namespace) -> None:
    """They are of no file of rows. Raises InvalidRequest."""
    kafka_only = (options.folder, options.config, options.config_file, options.cleanup_policy)
    if any(kafka_only) or options.paused:
        raise InvalidRequest(
            "A folder, --config, --config-file, --cleanup-policy and --paused are for `import "
            "kafka-log DIR`."
        )


def import_kafka_log(options: argparse.Namespace) -> int:
    from ledgerfold.broker.client.kafka_logs import KafkaLogs
    from ledgerfold.storage.kafka.folder import partition_of

    if options.folder is None:
        raise InvalidRequest("Say which folder: `import kafka-log DIR`.")
    if options.skip_rows or any(getattr(options, name) is not None for name in _ROWS_ONLY):
        raise InvalidRequest("A Kafka log has no rows: --key and the like are for files.")
    folder = absolute_path(options.folder)
    topic = options.topic or partition_of(folder)[0]
    config = _config(options)
    with interruptible(), KafkaLogs(options.url) as logs:
        imported = import_folder(logs, folder, topic, config, stays_paused=options.paused)
    notes = list(imported.notes)
    if imported.torn is not None:
        notes.append(_torn(imported.torn))
    if not (options.config or options.config_file):
        notes.append(
            f"the settings of {topic} are cleanup.policy={config['cleanup.policy']} and this "
            "broker's, for a partition's folder holds none: --config-file FILE takes what "
            "kafka-configs.sh --describe shows of the topic."
        )
    for note in notes:
        print(f"ledgerfold: {note}", file=sys.stderr)
    print(_told(imported, topic), file=sys.stderr)
    return DONE


def _config(options: argparse.Namespace) -> dict[str, str]:
    """Options count before the file, and a policy is compact where neither says."""
    from ledgerfold.broker.cli.topic_config_file import read_settings

    config = {"cleanup.policy": "compact"}
    if options.config_file is not None:
        config |= read_settings(options.config_file)
    if options.cleanup_policy is not None:
        config["cleanup.policy"] = options.cleanup_policy
    return config | settings_of(options.config)


def settings_of(given: list[str] | None) -> dict[str, str]:
    """
    >>> settings_of(["segment.ms=1000", "cleanup.policy=compact,delete"])
    {'segment.ms': '1000', 'cleanup.policy': 'compact,delete'}
    """
    found = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidRequest(f"--config {each}: write NAME=VALUE.")
        found[name.strip()] = value.strip()
    return found


def import_folder(
    logs: KafkaLogs,
    folder: Path,
    topic: str,
    config: Mapping[str, str],
    *,
    stays_paused: bool = False,
) -> Imported:
    """As a new topic, which is deleted again if anything goes wrong, and that is told: half a log
    is none.

    Raises TopicExists, InvalidRequest, Corruption, KafkaError, OSError, ServiceError.
    """
    from ledgerfold.storage.kafka.folder import segments_of

    segments, checkpoints = segments_of(folder), checkpoints_of(folder)
    logs.create(topic, config)
    copy = _Copy(logs, topic)
    try:
        # A turn in between would find half a log.
        logs.pause_cleaning(topic)
        imported = copy.run(list(segments), checkpoints)
    except BaseException:
        try:
            logs.delete(topic)
            left = f"{topic} was deleted again: the next import of it begins anew."
        except LedgerfoldError:
            # The broker is gone, say, which the first error tells.
            left = f"Half of {topic} may be left: `ledgerfold topics delete {topic}`."
        print(f"ledgerfold: Not finished: {copy.told}. {left}", file=sys.stderr)
        raise
    if not stays_paused:
        logs.resume_cleaning(topic)
    return imported


class _Copy:
    """The batches of a folder on their way into a topic."""

    def __init__(self, logs: KafkaLogs, topic: str) -> None:
        self._logs, self._topic = logs, topic
        self._batches = self._end_offset = 0
        # While it is under way: which segment, of how many.
        self._at, self._of = 0, 0
        self._torn: TornTail | None = None
        self._notes: list[str] = []

    @property
    def told(self) -> str:
        """How far it came."""
        batches = counted(self._batches, "batch", "batches")
        return f"it came to segment {self._at} of {self._of}, with {batches}"

    def run(self, segments: list[SegmentFile], checkpoints: Checkpoints) -> Imported:
        logs, topic = self._logs, self._topic
        empty_modified_ms, self._of = None, len(segments)
        for number, segment in enumerate(segments, 1):
            self._at = number
            if segment.start:
                self._notes.append(_split(segment))
            modified_ms = segment.modified_ms
            logs.begin_segment(topic, segment.base_offset, empty_modified_ms, modified_ms)
            for frame in self._frames(segment, is_last=number == len(segments)):
                logs.take_over(topic, frame, append_time_ms=modified_ms)
            self._take_index(segment)
            # Where it held nothing it stays all the same, once another one follows.
            empty_modified_ms = modified_ms
        log_end = logs.describe(topic).log_end_offset
        start = max(checkpoints.log_start_offset or 0, segments[0].base_offset)
        if start > log_end:
            # Nothing of it is left, and what is appended next is at the start.
            log_end = logs.begin_segment(topic, start)
        if start:
            logs.set_log_start(topic, start)
        checkpoint = checkpoints.first_dirty_offset
        if checkpoint is not None:
            logs.set_checkpoint(topic, checkpoint)
        size_bytes = sum(each.size_bytes for each in segments)
        size_bytes -= self._torn.size_bytes if self._torn is not None else 0
        return Imported(
            segments=len(segments),
            batches=self._batches,
            size_bytes=size_bytes,
            start_offset=start,
            end_offset=log_end,
            checkpoint=checkpoint,
            torn=self._torn,
            notes=self._notes,
        )

    def _take_index(self, segment: SegmentFile) -> None:
        """Of a cleaned segment its batches do not tell all that its transaction index does."""
        from ledgerfold.storage.kafka.folder import aborted_of
        from ledgerfold.v1.kafka_pb2 import KafkaAbortedInfo

        found = aborted_of(segment, self._end_offset)
        if found is None:
            self._notes.append(
                f"{segment.txn_index} is no transaction index: which transactions were aborted is "
                "taken from the batches, as Kafka would."
            )
        entries = [KafkaAbortedInfo(**each._asdict()) for each in found or ()]
        for at in range(0, len(entries), _INDEX_ENTRIES):
            some, modified_ms = entries[at : at + _INDEX_ENTRIES], segment.modified_ms
            self._logs.take_over(self._topic, b"", append_time_ms=modified_ms, aborted=some)

    def _frames(self, segment: SegmentFile, *, is_last: bool) -> Iterator[bytes]:
        from ledgerfold.storage.kafka.folder import SegmentReading

        frame, self._end_offset = bytearray(), segment.base_offset
        reading = SegmentReading(segment, is_last=is_last)
        for batch in reading:
            self._end_offset = batch.header.next_offset
            if frame and len(frame) + len(batch.data) > _FRAME_BYTES:
                yield bytes(frame)
                frame.clear()
            frame += batch.data
            self._batches += 1
        if frame:
            yield bytes(frame)
        self._torn = reading.torn


def checkpoints_of(folder: Path) -> Checkpoints:
    """Of the partition that the folder's name tells. Raises Corruption, OSError."""
    from ledgerfold.broker.kafka.checkpoint_file import (
        CHECKPOINT_FILE,
        TopicPartition,
        read_checkpoint,
    )
    from ledgerfold.storage.kafka.folder import partition_of

    found = list[int | None]()
    for name in (CHECKPOINT_FILE, LOG_START_FILE):
        path = folder.resolve().parent / name
        text = path.read_text("utf-8", "replace") if path.exists() else ""
        found.append(read_checkpoint(text, name).get(TopicPartition(*partition_of(folder))))
    first_dirty, log_start = found
    # Kafka begins at the log's start then, too.
    return Checkpoints(first_dirty if (first_dirty or 0) >= 0 else None, log_start)


def _split(segment: SegmentFile) -> str:
    return (
        f"{segment.path} holds offsets that are too far from its base for Kafka's indexes: it is "
        f"split at {segment.base_offset}, as Kafka's cleaner would."
    )


def _torn(torn: TornTail) -> str:
    return (
        f"{torn.path} ends in {counted(torn.size_bytes, 'byte')} of an append that was not "
        f"finished (at byte {torn.offset}: {torn.why}): they are left out, as Kafka would."
    )


def _told(imported: Imported, topic: str) -> str:
    checkpoint = imported.checkpoint
    cleaned = "no checkpoint" if checkpoint is None else f"clean up to {checkpoint}"
    return (
        f"{counted(imported.segments, 'segment')} with "
        f"{counted(imported.batches, 'batch', 'batches')} of {imported.size_bytes:,} bytes "
        f"imported into {topic}: offsets from "
        f"{imported.start_offset} to {imported.end_offset}, {cleaned}"
    )
