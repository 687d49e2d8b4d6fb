"""`import kafka-log`: imports a Kafka partition folder as a topic, batch by batch.

    ledgerfold import kafka-log copies/orders-0 --config min.cleanable.dirty.ratio=0.2

The folder is a copy from a Kafka broker's log directory, and is only read; checkpoint files next to
it are imported, too. The topic has the partition's segments, with their offsets, gaps, transaction
indexes, and modification times. Traces of a crash of Kafka are handled as by Kafka itself
(storage/kafka/folder.py). The folder does not contain settings.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.cli.connecting import credentials_of
from ledgerfold.broker.cli.data.export_kafka import LOG_START_FILE, read_checkpoint_file
from ledgerfold.broker.cli.ending import Interrupts
from ledgerfold.broker.cli.exit_codes import DONE
from ledgerfold.broker.cli.settings_files import read_settings
from ledgerfold.broker.cli.units import FILE, kafka_settings_of
from ledgerfold.broker.cli.verbs import argument, flag, group
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
    from ledgerfold.storage.kafka.folder import SegmentFile, TornTail

KAFKA_LOG = "kafka-log"
# Limit on the bytes of batches per request, except for a single larger batch.
_FRAME_BYTES = 4 * 1024 * 1024
# Limit on transaction index entries per request.
_INDEX_ENTRIES = 10_000
_ROWS_ONLY = ("key", "value", "format", "event_time", "properties", "tombstone_when")


class Checkpoints(NamedTuple):
    """The checkpoints of a partition in the files next to its folder."""

    first_dirty_offset: int | None
    log_start_offset: int | None


KAFKA_OPTIONS = group(
    "import kafka-log DIR",
    argument("folder DIR", "the folder; its name is the default of --topic", nargs="?"),
    argument("--cleanup-policy POLICY", "compact (the default), delete, or both"),
    argument(
        "--config K=V", "a setting of the topic, by Kafka's name; may be repeated", action="append"
    ),
    argument(
        "--config-file",
        "the topic's settings, as printed by kafka-configs.sh --describe, or K=V lines; "
        "--config overrides them",
        **FILE,
    ),
    flag("--paused", "leave cleaning of the topic paused"),
    description="imports a Kafka partition folder, such as DIR/orders-0, which is only read",
)


def refuse_kafka_options(options: argparse.Namespace) -> None:
    """Raises InvalidRequest if options of `import kafka-log` are given for a file."""
    kafka_only = (options.folder, options.config, options.config_file, options.cleanup_policy)
    if any(kafka_only) or options.paused:
        raise InvalidRequest(
            "A folder, --config, --config-file, --cleanup-policy and --paused require `import "
            "kafka-log DIR`."
        )


def import_kafka_log(options: argparse.Namespace) -> int:
    from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
    from ledgerfold.storage.kafka.folder import partition_of

    if options.folder is None:
        raise InvalidRequest("The folder is missing: `import kafka-log DIR`.")
    if options.skip_rows or any(getattr(options, name) is not None for name in _ROWS_ONLY):
        raise InvalidRequest(
            "A Kafka log has no rows: --key and the other row options are for files."
        )
    folder = absolute_path(options.folder)
    topic = options.topic or partition_of(folder)[0]
    config = _config(options)
    with Interrupts(signal.SIGTERM), KafkaLogs(options.url, **credentials_of(options)) as logs:
        imported = import_folder(logs, folder, topic, config, stays_paused=options.paused)
    notes = list(imported.notes)
    if imported.torn is not None:
        notes.append(_torn(imported.torn))
    if not (options.config or options.config_file):
        notes.append(
            f"{topic} has cleanup.policy={config['cleanup.policy']} and this broker's settings, "
            "because a partition folder contains none: --config-file FILE reads the output of "
            "kafka-configs.sh --describe."
        )
    for note in notes:
        print(f"ledgerfold: {note}", file=sys.stderr)
    print(_summary(imported, topic), file=sys.stderr)
    return DONE


def _config(options: argparse.Namespace) -> dict[str, str]:
    """Returns the topic's settings. Options override the file; the default policy is compact."""
    config = {"cleanup.policy": "compact"}
    if options.config_file is not None:
        config |= read_settings(options.config_file)
    if options.cleanup_policy is not None:
        config["cleanup.policy"] = options.cleanup_policy
    return config | kafka_settings_of(options.config or ())


def import_folder(
    logs: KafkaLogs,
    folder: Path,
    topic: str,
    config: Mapping[str, str],
    *,
    stays_paused: bool = False,
) -> Imported:
    """Imports a folder as a new topic. After a failure the partial topic is deleted, and a note
    printed.

    Raises TopicExists, InvalidRequest, Corruption, KafkaError, OSError, ServiceError.
    """
    from ledgerfold.storage.kafka.folder import segments_of

    segments, checkpoints = segments_of(folder), checkpoints_of(folder)
    logs.create(topic, config)
    imported = Imported(logs, topic, segments)
    try:
        # The cleaner must not clean a partial log.
        logs.pause_cleaning(topic)
        imported.run(checkpoints)
        if not stays_paused:
            logs.resume_cleaning(topic)
    except BaseException:
        try:
            logs.delete(topic)
            outcome = f"{topic} was deleted again: the next import starts from scratch."
        except LedgerfoldError:
            # For example because the broker does not answer, which the first error reports.
            outcome = f"A part of {topic} may be left: `ledgerfold topics delete {topic}`."
        print(f"ledgerfold: Not finished: {imported.progress}. {outcome}", file=sys.stderr)
        raise
    return imported


class Imported:
    """An import, and its result. `checkpoint`: the start of the next cleaning; None without one.

    `notes`: for the user, as sentences.
    """

    def __init__(self, logs: KafkaLogs, topic: str, segments: Sequence[SegmentFile]) -> None:
        self._logs, self._topic, self._segments = logs, topic, segments
        self.segments, self.batches = len(segments), 0
        self.size_bytes = sum(each.size_bytes for each in segments)
        self.start_offset = self.end_offset = 0
        self.checkpoint: int | None = None
        self.torn: TornTail | None = None
        self.notes: list[str] = []
        # The number of the segment in progress.
        self._at = 0

    @property
    def progress(self) -> str:
        """The progress of the import, as text."""
        batches = counted(self.batches, "batch", "batches")
        return f"stopped in segment {self._at} of {self.segments}, after {batches}"

    def run(self, checkpoints: Checkpoints) -> None:
        logs, topic, empty_modified_ms = self._logs, self._topic, None
        for number, segment in enumerate(self._segments, 1):
            self._at = number
            if segment.start:
                self.notes.append(_split(segment))
            modified_ms = segment.modified_ms
            logs.begin_segment(topic, segment.base_offset, empty_modified_ms, modified_ms)
            for frame in self._frames(segment, is_last=number == self.segments):
                logs.take_over(topic, frame, append_time_ms=modified_ms)
            self._take_index(segment)
            # An empty segment keeps its time once another one follows.
            empty_modified_ms = modified_ms
        self.end_offset = logs.describe(topic).log_end_offset
        start = max(checkpoints.log_start_offset or 0, self._segments[0].base_offset)
        if start > self.end_offset:
            # No record is left, and the next append is at the start.
            self.end_offset = logs.begin_segment(topic, start)
        if start:
            logs.take_over_log_start(topic, start)
        self.start_offset, self.checkpoint = start, checkpoints.first_dirty_offset
        if self.checkpoint is not None:
            logs.set_checkpoint(topic, self.checkpoint)
        self.size_bytes -= self.torn.size_bytes if self.torn is not None else 0

    def _take_index(self, segment: SegmentFile) -> None:
        """Imports the transaction index: a cleaned segment's batches do not have all its
        entries.
        """
        from ledgerfold.storage.kafka.folder import aborted_of
        from ledgerfold.v1.kafka_pb2 import KafkaAbortedInfo

        aborted = aborted_of(segment, self.end_offset)
        if aborted is None:
            self.notes.append(
                f"{segment.txn_index} is not a transaction index: aborted transactions are "
                "determined from the batches, as Kafka would."
            )
        entries = [KafkaAbortedInfo(**each._asdict()) for each in aborted or ()]
        for at in range(0, len(entries), _INDEX_ENTRIES):
            some, modified_ms = entries[at : at + _INDEX_ENTRIES], segment.modified_ms
            self._logs.take_over(self._topic, b"", append_time_ms=modified_ms, aborted=some)

    def _frames(self, segment: SegmentFile, *, is_last: bool) -> Iterator[bytes]:
        from ledgerfold.storage.kafka.folder import SegmentReading

        frame, self.end_offset = bytearray(), segment.base_offset
        reading = SegmentReading(segment, is_last=is_last)
        for batch in reading:
            self.end_offset = batch.header.next_offset
            if frame and len(frame) + len(batch.data) > _FRAME_BYTES:
                yield bytes(frame)
                frame.clear()
            frame += batch.data
            self.batches += 1
        if frame:
            yield bytes(frame)
        self.torn = reading.torn


def checkpoints_of(folder: Path) -> Checkpoints:
    """Reads the checkpoints of the partition that the folder's name denotes. Raises Corruption,
    OSError.
    """
    from ledgerfold.broker.kafka.log.checkpoint_file import CHECKPOINT_FILE, TopicPartition
    from ledgerfold.storage.kafka.folder import partition_of

    partition = TopicPartition(*partition_of(folder))
    first_dirty = read_checkpoint_file(folder, CHECKPOINT_FILE).get(partition)
    log_start = read_checkpoint_file(folder, LOG_START_FILE).get(partition)
    # Without a checkpoint, Kafka begins at the log start, too.
    return Checkpoints(first_dirty if (first_dirty or 0) >= 0 else None, log_start)


def _split(segment: SegmentFile) -> str:
    return (
        f"{segment.path} has offsets too far from its base for Kafka's indexes: it is split at "
        f"{segment.base_offset}, as Kafka's cleaner would."
    )


def _torn(torn: TornTail) -> str:
    return (
        f"{torn.path} ends with {counted(torn.size_bytes, 'byte')} of an incomplete "
        f"append (at byte {torn.offset}: {torn.why}): they are skipped, as Kafka would."
    )


def _summary(imported: Imported, topic: str) -> str:
    checkpoint = imported.checkpoint
    cleaned = "no checkpoint" if checkpoint is None else f"clean up to {checkpoint}"
    return (
        f"{counted(imported.segments, 'segment')} with "
        f"{counted(imported.batches, 'batch', 'batches')} of {imported.size_bytes:,} bytes "
        f"imported into {topic}: offsets from "
        f"{imported.start_offset} to {imported.end_offset}, {cleaned}"
    )
