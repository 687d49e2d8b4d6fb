"""A survey of a data directory: every record, every ledger's files, and unnamed files.

Reads everything, changes nothing, and checks only the files (storage/segment_check.py):
storage/repair/verify.py reports what is wrong, storage/repair/plan.py what can be done. If a
ledger's record is missing, or does not list some of its existing segments, the record is
reconstructed from the files, as that of an open ledger (`made_up`). The topic is the one that names
the ledger, or that of its label.

    >>> from ledgerfold.storage.files import REAL
    >>> from ledgerfold.storage.key_value import MemoryKeyValue
    >>> from ledgerfold.storage.metadata import MetadataStore
    >>> pairs = MemoryKeyValue()
    >>> with MetadataStore(pairs).batch() as batch:
    ...     batch.put(LedgerRecord(ledger_id=7, topic="t"))
    >>> survey = take(folder, pairs, REAL)
    >>> survey.ids(), survey.ledgers[7].is_whole
    ({7}, True)

Bounds: the store's records in memory, as in a broker that starts, and the result of segment_check
for one file; files are read in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import Message

from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import HEADER_BYTES, Position, read_header
from ledgerfold.storage.errors import Corruption, InvalidRequest, KafkaError, StorageError
from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.label import Label, read_label
from ledgerfold.storage.losses import load_mark, signs_of_loss, without_unfinished
from ledgerfold.storage.names import ledgers_dir, parse_ledger_dir, segment_number
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.storage.records import (
    GRANTS,
    SCHEMAS,
    STORE_KEY,
    TENANTS,
    WRITES_KEY,
    decode_record,
    key,
)
from ledgerfold.storage.repair.ledger_check import LedgerCheck, check_ledger
from ledgerfold.storage.repair_manifest import split_by_unfinished
from ledgerfold.storage.segment import with_segments
from ledgerfold.storage.segment_findings import SegmentCheck
from ledgerfold.storage.snapshot_folder import SnapshotFolder
from ledgerfold.storage.unnamed import UnnamedFile, listdir, unnamed_files
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LEDGER_KIND_RAW,
    LEDGER_STATE_DELETING,
    LEDGER_STATE_OPEN,
    CursorRecord,
    LedgerKind,
    LedgerRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    SchemaRecord,
    SegmentRecord,
    StoreRecord,
    TenantRecord,
    TopicRecord,
    WriteCountRecord,
)


class StoredProducer(NamedTuple):
    """A producer. `sequence_id`: the highest that is stored at or before `position`."""

    name: str
    sequence_id: int
    position: Position


@dataclass(slots=True)
class Survey:
    """The result of a survey. `unreadable`: keys whose value cannot be decoded.

    `unnamed`: paths relative to the ledgers folder. `metadata_damage`: some of the metadata cannot
    be read; `torn_metadata`: only a truncated, never acknowledged write cannot. `losses`: the
    proofs that the metadata have lost writes; `writes`: how many they have had, at least;
    `lost_writes`: how many they have lost, as far as is known. `labels`,
    by ledger id; `bad_labels`: the unreadable ones.
    """

    records: dict[bytes, Message] = field(default_factory=dict)
    unreadable: dict[bytes, StorageError] = field(default_factory=dict)
    ledgers: dict[int, LedgerCheck] = field(default_factory=dict)
    folders: dict[int, list[str]] = field(default_factory=dict)
    labels: dict[int, Label] = field(default_factory=dict)
    bad_labels: dict[int, Corruption] = field(default_factory=dict)
    unnamed: list[UnnamedFile] = field(default_factory=list)
    # If records may be missing: the producers found in entries, by topic and number; ledgers of
    # unknown topics.
    producers: dict[str, dict[int, StoredProducer]] = field(default_factory=dict)
    strays: list[LedgerCheck] = field(default_factory=list)
    metadata_damage: Corruption | None = None
    torn_metadata: Corruption | None = None
    has_mark: bool = False
    losses: list[str] = field(default_factory=list)
    writes: int = 0
    lost_writes: int = 0
    # The snapshots that cannot be restored; the ids of the ledgers of all.
    snapshots: dict[str, StorageError] = field(default_factory=dict)
    saved_ids: set[int] = field(default_factory=set)
    # If records may be missing: those in snapshots, of ledgers that have all of their files; the
    # ledgers in state DELETING that a lost write may have made live.
    saved: dict[int, LedgerRecord] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)

    @property
    def is_incomplete(self) -> bool:
        """True if records of existing ledgers may be missing."""
        return self.metadata_damage is not None or bool(self.losses)

    def topics(self) -> dict[str, TopicRecord]:
        records = self.records.values()
        return {each.name: each for each in records if isinstance(each, TopicRecord)}

    def features(self) -> list[str]:
        """Returns the features that readable records need."""
        kinds = {type(each) for each in self.records.values()}
        needed = {TENANTS: TenantRecord, SCHEMAS: SchemaRecord}
        features = [feature for feature, kind in needed.items() if kind in kinds]
        namespaces = (each for each in self.records.values() if isinstance(each, NamespaceRecord))
        return features + [GRANTS] * any(each.grants for each in namespaces)

    def ledger_records(self) -> dict[int, LedgerRecord]:
        """Returns all readable ledger records, including those in state DELETING."""
        records = self.records.values()
        return {each.ledger_id: each for each in records if isinstance(each, LedgerRecord)}

    def of_topics(self) -> list[CursorRecord | ProducerRecord | RunRecord]:
        """Returns the records that belong to a topic by name."""
        kinds = (CursorRecord, ProducerRecord, RunRecord)
        return [each for each in self.records.values() if isinstance(each, kinds)]

    def runs(self, topic: str) -> list[RunRecord]:
        """Returns the runs of a topic, oldest first."""
        records = self.records.values()
        return [each for each in records if isinstance(each, RunRecord) and each.topic == topic]

    def siblings(self, topic: str) -> int:
        """Returns the number of partitions of this partition's topic."""
        partition = parse_partition(topic)
        record = (
            None if partition is None else self.records.get(key("partitioned", partition.topic))
        )
        return record.partitions if isinstance(record, PartitionedTopicRecord) else 0

    def store(self) -> StoreRecord | None:
        record = self.records.get(b"store")
        return record if isinstance(record, StoreRecord) else None

    def ids(self) -> set[int]:
        """Returns every ledger id of a record or a folder."""
        named = {
            each
            for topic in self.topics().values()
            for each in (*topic.ledger_ids, *compacted_ids(topic))
        }
        return {*self.ledger_records(), *self.ledgers, *self.folders, *named}


def compacted_ids(topic: TopicRecord) -> list[int]:
    """Returns the topic's ledgers that a compaction, or Kafka's cleaner, wrote."""
    cleaned = [each for each in topic.kafka.segments if each.is_cleaned]
    ledger_ids = [ledger_id for each in cleaned for ledger_id in each.ledger_ids]
    if topic.HasField("compacted") and topic.compacted.ledger_id >= 0:
        ledger_ids.append(topic.compacted.ledger_id)
    return ledger_ids


def take(
    data_dir: Path,
    pairs: KeyValueStore,
    files: Files,
    metadata_damage: Corruption | None = None,
    *,
    is_tail: bool = False,
    is_same_boot: bool = False,
) -> Survey:
    """Surveys a data directory. `is_tail`: only the end of the metadata's log is damaged.

    `is_same_boot`: the machine has not stopped since a broker used the directory. Raises
    DiskFailure (a file or folder cannot be opened), and the store's errors.
    """
    survey, folder = Survey(metadata_damage=metadata_damage), ledgers_dir(data_dir)
    for at, value in pairs.scan(b""):
        try:
            survey.records[at] = decode_record(at, value)
        except StorageError as error:
            survey.unreadable[at] = error
    if files.exists(folder):
        _look_into(survey, folder, files)
    _find_losses(survey, data_dir, files)
    snapshots = SnapshotFolder(data_dir, files)
    survey.snapshots = snapshots.damaged()
    survey.saved_ids = snapshots.ledger_ids()
    if is_tail and is_same_boot and survey.has_mark and not survey.losses:
        # All counted writes are stored: the end is a truncated, never acknowledged write.
        survey.metadata_damage, survey.torn_metadata = None, metadata_damage
    if survey.is_incomplete and survey.folders:
        survey.saved = _saved(snapshots, folder)
        _forget_unfinished(survey, folder, files)
    for record, is_reconstructed in _records(survey):
        check = check_ledger(record, folder, files, is_same_boot=is_same_boot)
        check.is_reconstructed = is_reconstructed
        survey.ledgers[record.ledger_id] = check
    checked = {each.segment.path for check in survey.ledgers.values() for each in check.segments}
    survey.unnamed = [each for each in survey.unnamed if each.relative not in checked]
    if survey.is_incomplete:
        survey.producers = _producers(survey, folder, files)
        survey.strays = _strays(survey, folder, files, is_same_boot=is_same_boot)
    return survey


def _look_into(survey: Survey, folder: Path, files: Files) -> None:
    """Lists the ledgers' folders and reads their labels."""
    for name in files.listdir(folder):
        ledger_id = parse_ledger_dir(name)
        if ledger_id is None:
            continue
        survey.folders[ledger_id] = listdir(folder / name, files)
        try:
            label = read_label(folder / name, files)
        except Corruption as error:
            survey.bad_labels[ledger_id] = error
            continue
        if label is not None:
            survey.labels[ledger_id] = label
    survey.unnamed = _unnamed(survey, folder, files)


def _find_losses(survey: Survey, data_dir: Path, files: Files) -> None:
    counted = survey.records.get(WRITES_KEY)
    stored = counted.writes if isinstance(counted, WriteCountRecord) else 0
    mark, store = load_mark(data_dir, files), survey.store()
    survey.has_mark = mark is not None
    survey.writes = stored if mark is None else max(stored, mark.highest)
    survey.lost_writes = survey.writes - stored
    highest_id = max(survey.folders, default=0)
    if STORE_KEY in survey.unreadable:
        # The unreadable store record is a separate finding.
        store = StoreRecord(next_ledger_id=highest_id + 1)
    survey.losses = signs_of_loss(
        survey.unnamed, highest_id, store, None if mark is None else mark.highest, stored
    )
    if store is not None and store.is_incomplete and not survey.losses:
        survey.losses = ["an earlier start found losses, which no repair has restored"]


def _saved(snapshots: SnapshotFolder, folder: Path) -> dict[int, LedgerRecord]:
    all_ledgers = (each for _, ledgers in snapshots.ledgers() for each in ledgers.values())
    return {
        each.ledger_id: each
        for each in all_ledgers
        if not any(snapshots.unwhole(each, lambda path: folder / path))
    }


def _forget_unfinished(survey: Survey, folder: Path, files: Files) -> None:
    """Treats ledgers that a lost write may have made live as those without a record."""
    ledgers = survey.ledger_records()
    known = without_unfinished(ledgers, survey.topics(), survey.saved_ids)
    survey.unfinished = ledgers.keys() - known.keys()
    for ledger_id in survey.unfinished:
        del survey.records[key("ledger", ledger_id)]
    survey.unnamed = _unnamed(survey, folder, files)


def _unnamed(survey: Survey, folder: Path, files: Files) -> list[UnnamedFile]:
    split = split_by_unfinished(folder.parent, files)
    return unnamed_files(folder, survey.ledger_records(), files, split)


def _records(survey: Survey) -> Iterator[tuple[LedgerRecord, bool]]:
    """Yields the records of the ledgers to check, and whether each is reconstructed.

    Ledgers that are being deleted are not checked.
    """
    known = survey.ledger_records()
    raw = {each.ledger_id for each in survey.unnamed if each.is_raw}
    for record in known.values():
        if record.state == LEDGER_STATE_DELETING:
            continue
        if record.ledger_id in raw:
            yield _with_all_segments(record, survey.folders[record.ledger_id]), True
        else:
            yield record, False
    record_keys = set(known)
    for topic in survey.topics().values():
        references = [(each, LEDGER_KIND_RAW) for each in topic.ledger_ids]
        references += [(each, LEDGER_KIND_COMPACTED) for each in compacted_ids(topic)]
        for ledger_id, kind in references:
            if ledger_id not in record_keys and ledger_id in survey.folders:
                record_keys.add(ledger_id)
                yield _reconstructed(survey, ledger_id, kind, topic.name)
    for ledger_id in sorted(survey.labels.keys() - record_keys if survey.is_incomplete else ()):
        label = survey.labels[ledger_id]
        if any(each.ledger_id == ledger_id and each.holds_entries for each in survey.unnamed):
            yield _reconstructed(survey, ledger_id, label.kind, label.topic)


def _reconstructed(
    survey: Survey, ledger_id: int, kind: LedgerKind, topic: str
) -> tuple[LedgerRecord, bool]:
    label = survey.labels.get(ledger_id)
    if label is not None and label.record is not None:
        return label.record, False
    saved = survey.saved.get(ledger_id)
    if saved is not None and saved.topic == topic:
        return saved, False
    record = LedgerRecord(ledger_id=ledger_id, kind=kind, state=LEDGER_STATE_OPEN, topic=topic)
    return _with_all_segments(record, survey.folders[ledger_id]), True


def _with_all_segments(record: LedgerRecord, names: list[str]) -> LedgerRecord:
    """Returns the ledger's record as if it were open, with a segment for each file."""
    known = {each.path for each in record.segments}
    paths = [f"{record.ledger_id}/{each}" for each in names if segment_number(each) is not None]
    unknown = (SegmentRecord(path=each) for each in paths if each not in known)
    segments = [*record.segments, *unknown]
    segments.sort(key=lambda each: segment_number(each.path) or 0)
    rebuilt = with_segments(record, segments)
    rebuilt.state = LEDGER_STATE_OPEN
    return rebuilt


def _producers(survey: Survey, folder: Path, files: Files) -> dict[str, dict[int, StoredProducer]]:
    """Finds the producers of Pulsar-style topics; those of Kafka topics are in the batches."""
    producers: dict[str, dict[int, StoredProducer]] = {}
    for check in sorted(survey.ledgers.values(), key=lambda each: each.record.ledger_id):
        extents = check.extents()
        if not check.is_raw or not extents or check.span().batches:
            continue
        of_topic = producers.setdefault(check.record.topic, {})
        for segment in check.segments:
            for number, seen in segment.producers.items():
                before = of_topic.get(number)
                name = (
                    before.name if before else _producer_name(segment, seen.offset, folder, files)
                )
                sequence_id = max(seen.sequence_id, before.sequence_id if before else -1)
                of_topic[number] = StoredProducer(name, sequence_id, extents[-1].last)
        for number, known in of_topic.items():
            of_topic[number] = known._replace(position=extents[-1].last)
    return producers


def _producer_name(segment: SegmentCheck, offset: int, folder: Path, files: Files) -> str:
    """Returns the entry's producer name; "" if it cannot be decoded."""
    with closing(files.open_read(folder / segment.segment.path)) as file:
        header = read_header(file.pread(HEADER_BYTES, offset))
        entry = file.pread(header.size_bytes, offset)
    try:
        return decode(entry, header).producer_name
    except (InvalidRequest, KafkaError):
        return ""


def _strays(survey: Survey, folder: Path, files: Files, *, is_same_boot: bool) -> list[LedgerCheck]:
    strays = []
    for ledger_id in sorted({each.ledger_id for each in survey.unnamed if each.is_raw}):
        record = _with_all_segments(LedgerRecord(ledger_id=ledger_id), survey.folders[ledger_id])
        strays.append(check_ledger(record, folder, files, is_same_boot=is_same_boot))
    return strays
