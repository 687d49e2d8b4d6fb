"""All of a data directory as it is: each record, each ledger's files, what nobody names.

Reads everything, changes nothing, and judges nothing but the files (storage/segment_check.py):
storage/verify.py tells what is wrong with it, storage/repair_plan.py what can be done. A topic may
name a ledger whose record is gone while its files are there: then the record is made up from them,
as that of an open ledger (`made_up`).

    >>> from ledgerfold.storage.files import REAL
    >>> from ledgerfold.storage.key_value import MemoryKeyValue
    >>> from ledgerfold.storage.metadata import MetadataStore
    >>> pairs = MemoryKeyValue()
    >>> with MetadataStore(pairs).batch() as batch:
    ...     batch.put_ledger(LedgerRecord(ledger_id=7, topic="t"))
    >>> survey = take(folder, pairs, REAL)
    >>> survey.ids(), survey.ledgers[7].is_whole
    ({7}, True)

Bounds: the records of the store in memory, as a broker has them when it starts, and what
segment_check says of one file; the files themselves are read in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import Corruption, StorageError
from ledgerfold.storage.files import Files
from ledgerfold.storage.kafka.span import Span, joined
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.metadata import decode_record
from ledgerfold.storage.names import ledgers_dir, parse_ledger_dir, parse_segment_name
from ledgerfold.storage.segment import record_position
from ledgerfold.storage.segment_check import Bounds, Extent, SegmentCheck, check_segment
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LEDGER_KIND_RAW,
    LEDGER_STATE_DELETING,
    LEDGER_STATE_OPEN,
    CursorRecord,
    LedgerKind,
    LedgerRecord,
    PositionRange,
    ProducerRecord,
    RunRecord,
    SegmentRecord,
    StoreRecord,
    TopicRecord,
)

_ENTRY_ID_MAX = 2**63 - 1


@dataclass(slots=True)
class LedgerCheck:
    """A ledger's record beside what its files hold."""

    record: LedgerRecord
    segments: list[SegmentCheck]
    is_made_up: bool = False

    @property
    def is_raw(self) -> bool:
        return self.record.kind != LEDGER_KIND_COMPACTED

    @property
    def is_open(self) -> bool:
        return self.record.state == LEDGER_STATE_OPEN

    @property
    def is_whole(self) -> bool:
        """In its files. A raw one is without gaps, too, but for those that are recorded."""
        if self.is_made_up or not all(each.is_whole for each in self.segments):
            return False
        return not self.is_raw or self.lost() == [_pair(each) for each in self.record.lost]

    def extents(self) -> list[Extent]:
        return [extent for each in self.segments for extent in each.extents]

    def span(self) -> Span:
        """Of the Kafka batches in it."""
        return joined(extent.span for extent in self.extents())

    def lost(self) -> list[tuple[int, int]]:
        """Of a raw ledger: ranges of entry ids, first and last, that nothing good holds.

        Up to the last entry that anything tells of.
        """
        missing: list[tuple[int, int]] = []
        expected = 0
        for extent in self.extents():
            if extent.first.entry_id > expected:
                missing.append((expected, extent.first.entry_id - 1))
            expected = extent.last.entry_id + 1
        end = max((each for each in self._known_ends()), default=-1)
        if end >= expected:
            missing.append((expected, end))
        return missing

    def _known_ends(self) -> Iterator[int]:
        for each in self.record.lost:
            yield each.last_entry_id
        for check in self.segments:
            if check.segment.entries:
                yield check.segment.last.entry_id
            elif check.size_bytes is None:
                # Of an open segment nobody wrote down more than its first entry.
                yield parse_segment_name(Path(check.segment.path).name) or 0
            for damage in check.damages:
                if not damage.is_torn and not check.segment.sealed:
                    yield damage.entry.entry_id


def _pair(lost: PositionRange) -> tuple[int, int]:
    return lost.first_entry_id, lost.last_entry_id


@dataclass(slots=True)
class Survey:
    """`unreadable`: keys whose value is no record. `unnamed`: paths below the ledgers folder.

    `metadata_damage`: what was written last to the metadata cannot be read.
    """

    records: dict[bytes, Message] = field(default_factory=dict)
    unreadable: dict[bytes, StorageError] = field(default_factory=dict)
    ledgers: dict[int, LedgerCheck] = field(default_factory=dict)
    folders: dict[int, list[str]] = field(default_factory=dict)
    unnamed: list[str] = field(default_factory=list)
    metadata_damage: Corruption | None = None

    def topics(self) -> dict[str, TopicRecord]:
        found = self.records.values()
        return {each.name: each for each in found if isinstance(each, TopicRecord)}

    def ledger_records(self) -> dict[int, LedgerRecord]:
        """All that can be read, those in state DELETING too."""
        found = self.records.values()
        return {each.ledger_id: each for each in found if isinstance(each, LedgerRecord)}

    def of_topics(self) -> list[CursorRecord | ProducerRecord | RunRecord]:
        """Records that belong to a topic by its name."""
        kinds = (CursorRecord, ProducerRecord, RunRecord)
        return [each for each in self.records.values() if isinstance(each, kinds)]

    def runs(self, topic: str) -> list[RunRecord]:
        """Oldest first."""
        found = self.records.values()
        return [each for each in found if isinstance(each, RunRecord) and each.topic == topic]

    def store(self) -> StoreRecord | None:
        found = self.records.get(b"store")
        return found if isinstance(found, StoreRecord) else None

    def ids(self) -> set[int]:
        """Every ledger id that a record or a folder has."""
        named = {
            each
            for topic in self.topics().values()
            for each in (*topic.ledger_ids, *compacted_ids(topic))
        }
        return {*self.ledger_records(), *self.ledgers, *self.folders, *named}


def compacted_ids(topic: TopicRecord) -> list[int]:
    """The ledgers that a compaction, or Kafka's cleaner, wrote, and that the topic names."""
    cleaned = [each for each in topic.kafka.segments if each.is_cleaned]
    found = [ledger_id for each in cleaned for ledger_id in each.ledger_ids]
    if topic.HasField("compacted") and topic.compacted.ledger_id >= 0:
        found.append(topic.compacted.ledger_id)
    return found


def take(
    data_dir: Path,
    pairs: KeyValueStore,
    files: Files,
    metadata_damage: Corruption | None = None,
    *,
    is_same_boot: bool = False,
) -> Survey:
    """`is_same_boot`: the machine has not stopped since a broker had the directory.

    Raises DiskFailure (a file or folder that cannot be opened), and what the store raises."""
    survey, folder = Survey(metadata_damage=metadata_damage), ledgers_dir(data_dir)
    for key, value in pairs.scan(b""):
        try:
            survey.records[key] = decode_record(key, value)
        except StorageError as error:
            survey.unreadable[key] = error
    if files.exists(folder):
        for name in files.listdir(folder):
            ledger_id = parse_ledger_dir(name)
            if ledger_id is not None:
                survey.folders[ledger_id] = files.listdir(folder / name)
    for record, is_made_up in _records(survey):
        check = check_ledger(record, folder, files, is_same_boot=is_same_boot)
        check.is_made_up = is_made_up
        survey.ledgers[record.ledger_id] = check
    named = {
        each.path for record in survey.ledger_records().values() for each in record.segments
    } | {each.segment.path for check in survey.ledgers.values() for each in check.segments}
    for ledger_id, names in survey.folders.items():
        survey.unnamed += [
            f"{ledger_id}/{name}" for name in names if f"{ledger_id}/{name}" not in named
        ]
    return survey


def _records(survey: Survey) -> Iterator[tuple[LedgerRecord, bool]]:
    """Of the ledgers to check: those that are not being deleted."""
    known = survey.ledger_records()
    for record in known.values():
        if record.state != LEDGER_STATE_DELETING:
            yield record, False
    for topic in survey.topics().values():
        wanted = [(each, LEDGER_KIND_RAW) for each in topic.ledger_ids]
        wanted += [(each, LEDGER_KIND_COMPACTED) for each in compacted_ids(topic)]
        for ledger_id, kind in wanted:
            if ledger_id not in known and ledger_id in survey.folders:
                yield _made_up(ledger_id, kind, topic.name, survey.folders[ledger_id]), True


def _made_up(ledger_id: int, kind: LedgerKind, topic: str, names: list[str]) -> LedgerRecord:
    segments = [
        SegmentRecord(path=f"{ledger_id}/{name}")
        for name in sorted(names)
        if parse_segment_name(name) is not None
    ]
    return LedgerRecord(
        ledger_id=ledger_id, kind=kind, state=LEDGER_STATE_OPEN, topic=topic, segments=segments
    )


def check_ledger(
    record: LedgerRecord, folder: Path, files: Files, *, is_same_boot: bool
) -> LedgerCheck:
    """Every byte of its files. Raises DiskFailure."""
    found: list[SegmentCheck] = []
    after = EARLIEST
    for number, segment in enumerate(record.segments):
        bounds = Bounds(after)
        if record.kind != LEDGER_KIND_COMPACTED:
            bounds = _raw_bounds(record, number)
        if segment.sealed and segment.entries:
            # What comes behind was never acknowledged, whatever it looks like.
            bounds = bounds._replace(before=record_position(segment, last=True).next)
        bounds = bounds._replace(is_same_boot=is_same_boot or record.damaged)
        check = check_segment(folder / segment.path, segment, bounds, files)
        found.append(check)
        if check.extents:
            after = check.extents[-1].last
    return LedgerCheck(record, found)


def _raw_bounds(record: LedgerRecord, number: int) -> Bounds:
    before = _ENTRY_ID_MAX
    if number + 1 < len(record.segments):
        before = _first_entry_id(record.segments[number + 1])
    after = _first_entry_id(record.segments[number]) - 1
    ledger_id = record.ledger_id
    return Bounds(Position(ledger_id, after), Position(ledger_id, before), ledger_id)


def _first_entry_id(segment: SegmentRecord) -> int:
    """Of a raw ledger's segment, by its file's name."""
    number = parse_segment_name(Path(segment.path).name)
    return record_position(segment, last=False).entry_id if number is None else number
