"""The findings about a data directory. Pure: storage/repair/survey.py reads it.

It checks every record (it decodes, and matches its key), every reference (topic to ledgers and
compacted view, a Kafka log's segments to ledgers, in order of offset, ledger to topic and files,
cursor, producer and run to topic, ids below the next free one) and every byte of every segment:
headers, both sections' checksums, the order of ids, gaps between segments, and the record's totals.
A *note* is not a defect: it reports what the next start of the broker handles, and copies for
inspection.

    >>> survey = Survey()
    >>> survey.records[b"topic/t"] = TopicRecord(name="t", ledger_ids=[7])
    >>> for finding in findings(survey):
    ...     print(f"{finding.kind}: {finding.expected}, {finding.found}")
    reference: raw ledger 7, no record of it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import Corruption, StorageError
from ledgerfold.storage.names import ASIDE_SUFFIX, LABEL, METADATA, SNAPSHOTS, TORN_SUFFIX
from ledgerfold.storage.records import LABELS, first_fall
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.survey import Survey, compacted_ids
from ledgerfold.storage.segment_findings import SegmentCheck
from ledgerfold.storage.text import counted
from ledgerfold.storage.unnamed import UnnamedFile
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LEDGER_STATE_DELETING,
    TopicRecord,
)

# -1 and "" mean: not applicable.
NO_LEDGER = NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `path` is relative to the data directory; `offset` is a byte in that file.

    Kinds: metadata, record, reference, label, unrecorded, file, entry, order, gap, sums, vector,
    format, snapshot; of notes: torn-tail, torn-copy, aside, orphan.
    """

    kind: str
    expected: str
    found: str
    topic: str = ""
    ledger_id: int = NO_LEDGER
    path: str = ""
    offset: int = NO_OFFSET
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of what was read. Entries, messages and bytes are the good ones."""

    topics: int
    ledgers: int
    segments: int
    entries: int
    messages: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"{counted(self.topics, 'topic')}, {counted(self.ledgers, 'ledger')}, "
            f"{counted(self.segments, 'segment')}, {counted(self.entries, 'entry', 'entries')}, "
            f"{counted(self.messages, 'message')}, {counted(self.size_bytes, 'byte')}"
        )


def totals(survey: Survey) -> Totals:
    checks = [each for ledger in survey.ledgers.values() for each in ledger.segments]
    extents = [extent.record for each in checks for extent in each.extents]
    return Totals(
        topics=len(survey.topics()),
        ledgers=len(survey.ledgers),
        segments=len(checks),
        entries=sum(each.entries for each in extents),
        messages=sum(each.messages for each in extents),
        size_bytes=sum(each.size_bytes for each in extents),
    )


def findings(survey: Survey) -> Iterator[Finding]:
    """Yields findings: records, then topics, then ledgers by id, unnamed files,
    snapshots."""
    if survey.metadata_damage is not None:
        yield metadata_finding(survey.metadata_damage)
    if survey.torn_metadata is not None:
        found = "a truncated write, which was never acknowledged"
        yield Finding("torn-tail", "the end of its log", found, path=METADATA, is_note=True)
    for sign in survey.losses:
        yield Finding("metadata", "all their writes", sign, path=METADATA)
    for key, error in survey.unreadable.items():
        yield _unreadable(key, error)
    for topic in survey.topics().values():
        yield from _topic(survey, topic)
    yield from _owners(survey)
    yield from _labels(survey)
    for ledger_id in sorted(survey.ledgers):
        yield from _ledger(survey, survey.ledgers[ledger_id])
    yield from _copies(survey)
    yield from map(_unnamed, survey.unnamed)
    for name, error in survey.snapshots.items():
        path = f"{SNAPSHOTS}/{name}"
        yield Finding("snapshot", "a snapshot that can be restored", str(error), path=path)


def metadata_finding(damage: Corruption) -> Finding:
    """Returns the finding about the metadata store itself."""
    return Finding("metadata", damage.expected, damage.found, path=METADATA)


def _unreadable(key: bytes, error: StorageError) -> Finding:
    expected, found = "a record of this version", str(error)
    if isinstance(error, Corruption):
        expected, found = error.expected, error.found
    kind, _, rest = key.decode(errors="replace").partition("/")
    topic = rest.partition("\0")[0] if kind in ("topic", "cursor", "producer", "run") else ""
    ledger_id = int(rest) if kind == "ledger" and rest.isdecimal() else NO_LEDGER
    name = key.decode(errors="backslashreplace").replace("\0", "/")
    return Finding("record", expected, found, topic, ledger_id, f"metadata: {name}")


# -- references ------------------------------------------------------------------------------


def _topic(survey: Survey, topic: TopicRecord) -> Iterator[Finding]:
    records = survey.ledger_records()
    for ledger_id in topic.ledger_ids:
        record = records.get(ledger_id)
        if record is None:
            found = "no record of it"
        elif record.state == LEDGER_STATE_DELETING:
            found = "a ledger that is being deleted"
        elif record.kind == LEDGER_KIND_COMPACTED:
            found = "a compacted one"
        elif record.topic != topic.name:
            found = f"one of {record.topic}"
        else:
            continue
        yield Finding("reference", f"raw ledger {ledger_id}", found, topic.name, ledger_id)
    if list(topic.ledger_ids) != sorted(set(topic.ledger_ids)):
        yield Finding("reference", "ledgers in order of id", str(topic.ledger_ids), topic.name)
    if topic.HasField("compacted") and topic.compacted.ledger_id >= 0:
        yield from _view(survey, topic)
    if topic.HasField("kafka"):
        yield from _segments(survey, topic)


def _compacted_problem(survey: Survey, topic: TopicRecord, ledger_id: int) -> str | None:
    """Describes what is wrong with the reference to a compacted ledger, not with the ledger."""
    record = survey.ledger_records().get(ledger_id)
    if record is None:
        return "no record of it"
    if record.kind != LEDGER_KIND_COMPACTED:
        return "a raw ledger"
    if record.topic != topic.name:
        return f"one of {record.topic}"
    return "a ledger that is being deleted" if record.state == LEDGER_STATE_DELETING else None


def _view(survey: Survey, topic: TopicRecord) -> Iterator[Finding]:
    ledger_id = topic.compacted.ledger_id
    problem = _compacted_problem(survey, topic, ledger_id)
    if problem is not None:
        yield Finding("reference", f"compacted ledger {ledger_id}", problem, topic.name, ledger_id)
    last, horizon = last_compacted(survey, topic), horizon_of(topic)
    if last is not None and last > horizon:
        expected = f"a horizon at or after {last}, its last entry"
        yield Finding("reference", expected, f"the horizon {horizon}", topic.name, ledger_id)


def _segments(survey: Survey, topic: TopicRecord) -> Iterator[Finding]:
    """Checks that each ledger of a Kafka log is in one of its segments, which are in order."""
    segments, fall = topic.kafka.segments, first_fall(topic.kafka)
    for ledger_id in compacted_ids(topic):
        problem = _compacted_problem(survey, topic, ledger_id)
        if problem is not None:
            expected = f"cleaned ledger {ledger_id}"
            yield Finding("reference", expected, problem, topic.name, ledger_id)
    raw = [each for segment in segments if not segment.is_cleaned for each in segment.ledger_ids]
    if raw != list(topic.ledger_ids):
        expected = f"segments of the raw ledgers {list(topic.ledger_ids)}"
        yield Finding("reference", expected, f"those of {raw}", topic.name)
    if fall is not None:
        found = f"base offset {fall[1]} after {fall[0]}"
        yield Finding("reference", "segments in order of base offset", found, topic.name)


def horizon_of(topic: TopicRecord) -> Position:
    return Position(topic.compacted.horizon.ledger_id, topic.compacted.horizon.entry_id)


def last_compacted(survey: Survey, topic: TopicRecord) -> Position | None:
    check = survey.ledgers.get(topic.compacted.ledger_id)
    extents = [] if check is None else check.extents()
    return extents[-1].last if extents else None


def is_named(survey: Survey, check: LedgerCheck) -> bool:
    """Returns whether the ledger's topic names it."""
    topic = survey.topics().get(check.record.topic)
    if topic is None:
        return False
    ledger_id = check.record.ledger_id
    if check.is_raw:
        return ledger_id in topic.ledger_ids
    return ledger_id in compacted_ids(topic)


def _owners(survey: Survey) -> Iterator[Finding]:
    """Checks that the topics of ledgers and records exist."""
    for ledger_id, check in sorted(survey.ledgers.items()):
        if not is_named(survey, check):
            kind, name = "raw" if check.is_raw else "compacted", check.record.topic
            found = f"a {kind} ledger that it does not name"
            yield Finding("reference", f"a record of {name}", found, name, ledger_id)
    topics = survey.topics()
    for record in survey.of_topics():
        if record.topic not in topics:
            what = type(record).__name__
            yield Finding("reference", f"a record of {record.topic}", f"a {what}", record.topic)


def _labels(survey: Survey) -> Iterator[Finding]:
    for check in wrongly_labelled(survey):
        record = check.record
        label = survey.labels.get(record.ledger_id)
        error = survey.bad_labels.get(record.ledger_id)
        expected = f"a label of ledger {record.ledger_id} of {record.topic}"
        found = "none" if label is None else f"that of ledger {label.ledger_id} of {label.topic}"
        if error is not None:
            expected, found = error.expected, error.found
        path = f"ledgers/{record.ledger_id}/{LABEL}"
        yield Finding("label", expected, found, record.topic, record.ledger_id, path)


def wrongly_labelled(survey: Survey) -> Iterator[LedgerCheck]:
    """Yields the ledgers with entries whose label is missing or unreadable, and all with the label
    of another ledger.

    A failed or killed first write of a ledger leaves any part of the label, and no entry.
    """
    store = survey.store()
    needs_labels = store is not None and LABELS in store.features
    for ledger_id, check in sorted(survey.ledgers.items()):
        label, record = survey.labels.get(ledger_id), check.record
        if label is not None:
            if (label.ledger_id, label.kind, label.topic) != (ledger_id, record.kind, record.topic):
                yield check
        elif check.extents() and (needs_labels or ledger_id in survey.bad_labels):
            yield check


# -- files -----------------------------------------------------------------------------------


def _ledger(survey: Survey, check: LedgerCheck) -> Iterator[Finding]:
    ledger_id = check.record.ledger_id
    if check.is_reconstructed and ledger_id in survey.ledger_records():
        found = "a record without some of them"
        yield _of(check, Finding("record", "all segments of the ledger", found))
    for segment in check.segments:
        for finding in _segment(segment):
            yield _of(check, finding)
    if check.is_raw and all(each.is_whole for each in check.segments):
        recorded = [(each.first_entry_id, each.last_entry_id) for each in check.record.lost]
        for first, last in check.lost_ranges():
            if (first, last) not in recorded:
                expected = f"entries {first} to {last}"
                yield _of(check, Finding("gap", expected, "no segment that holds them"))


def _of(check: LedgerCheck, finding: Finding) -> Finding:
    return replace(finding, topic=check.record.topic, ledger_id=check.record.ledger_id)


def _segment(check: SegmentCheck) -> Iterator[Finding]:
    path = f"ledgers/{check.segment.path}"
    if check.size_bytes is None:
        yield Finding("file", _size(check), "no such file", path=path)
    for damage in check.damages:
        kind = "torn-tail" if damage.is_torn else damage.kind
        yield Finding(
            kind,
            damage.expected,
            damage.found,
            path=path,
            offset=damage.offset,
            is_note=damage.is_torn,
        )
    if check.newer is not None:
        expected = "a version that this build reads"
        yield Finding("format", expected, f"version {check.newer.version}", path=path)


def _size(check: SegmentCheck) -> str:
    segment = check.segment
    return f"{segment.size_bytes} bytes" if segment.sealed else "the open segment"


def _copies(survey: Survey) -> Iterator[Finding]:
    for ledger_id, names in survey.folders.items():
        for name in names:
            if name.endswith(TORN_SUFFIX):
                found = "a copy of a segment whose torn tail a start has cut"
                path = f"ledgers/{ledger_id}/{name}"
                yield Finding("torn-copy", "nothing", found, path=path, is_note=True)


def _unnamed(file: UnnamedFile) -> Finding:
    path, is_note = file.relative, not file.is_raw
    if file.is_raw:
        kind, found = "unrecorded", "entries that no record names"
    elif path.endswith(ASIDE_SUFFIX):
        kind, found = "aside", "an unfinished segment; the next start removes it"
    else:
        kind, found = (
            "orphan",
            "a file that no record names; the next start removes it",
        )
    return Finding(kind, "nothing", found, path=f"ledgers/{path}", is_note=is_note)
