"""Detection of lost metadata writes, at a start.

RocksDB opens without an error when the end of its log is missing: the store is then in an older
state. Each of these proves a loss:

* The store counts fewer writes than the write mark (storage/write_mark.py), or the mark is missing.
* A ledger's folder has an id that was never allocated: ids are reserved before they are used.
* A raw segment that no record names has entries (storage/unnamed.py).

The store record then has `is_incomplete`, until a repair: nothing that holds an entry is removed. A
topic is not served if one of its ledgers has entries that no record describes: reads would end
early, without an error. All other topics are served. A record in state DELETING does not describe
its ledger if a lost write may have made the ledger live.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ledgerfold.storage.errors import Corruption, MetadataLost
from ledgerfold.storage.files import Files
from ledgerfold.storage.label import Label, read_label
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import parse_ledger_dir, write_mark_path
from ledgerfold.storage.producer_ids import IDS_PER_BLOCK
from ledgerfold.storage.records import LABELS
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.repair_manifest import split_by_unfinished
from ledgerfold.storage.snapshot_folder import SnapshotFolder
from ledgerfold.storage.text import counted
from ledgerfold.storage.unnamed import UnnamedFile, unnamed_files
from ledgerfold.storage.write_mark import WriteMark
from ledgerfold.v1.records_pb2 import LEDGER_STATE_DELETING, LedgerRecord, StoreRecord

_log = logging.getLogger(__name__)


def find_losses(
    ledgers_dir: Path,
    metadata: MetadataStore,
    ledgers: Mapping[int, LedgerRecord],
    files: Files,
    report: RecoveryReport,
) -> list[UnnamedFile]:
    """Records losses durably; returns the files that no record names. Raises DiskFailure.

    From here on the metadata's writes are counted in the write mark.
    """
    data_dir = ledgers_dir.parent
    unnamed = unnamed_files(ledgers_dir, ledgers, files, split_by_unfinished(data_dir, files))
    folders = [parse_ledger_dir(each) for each in files.listdir(ledgers_dir)]
    highest_id = max((each for each in folders if each is not None), default=0)
    mark, store = load_mark(data_dir, files), metadata.store()
    marked = None if mark is None else mark.highest
    signs = signs_of_loss(unnamed, highest_id, store, marked, metadata.writes)
    was_known = store is not None and store.is_incomplete
    lost = 0 if mark is None else max(0, mark.highest - metadata.writes)
    if mark is not None:
        metadata.follow(mark)
    if signs and not was_known:
        _log.error(
            "The metadata in %s have lost their last writes (%s). Nothing that holds an entry is "
            "removed. Stop the broker; then `ledgerfold verify` lists what is missing, and "
            "`ledgerfold repair` restores records from the ledgers.",
            data_dir,
            "; ".join(signs),
        )
    if signs:
        metadata.change_store(lambda store: _note_losses(store, lost))
    if mark is None:
        # NOTE: only after the store record states that the mark was missing.
        metadata.follow(WriteMark.create(write_mark_path(data_dir), metadata.writes, files))
    metadata.skip_ledger_ids(highest_id)
    report.is_incomplete = bool(signs) or was_known
    if report.is_incomplete:
        # A restore brings ledgers back under their ids.
        metadata.skip_ledger_ids(max(SnapshotFolder(data_dir, files).ledger_ids(), default=0))
        return name_topics(ledgers_dir, ledgers, metadata.topic_names(), files, report)
    return unnamed


def _note_losses(store: StoreRecord, lost_writes: int) -> None:
    """`lost_writes`: the number of lost writes, each of which may have reserved a block of ids."""
    store.is_incomplete = True
    store.next_producer_id += lost_writes * IDS_PER_BLOCK


def load_mark(data_dir: Path, files: Files) -> WriteMark | None:
    """Returns the write mark; None if it is missing or unreadable."""
    try:
        return WriteMark.load(write_mark_path(data_dir), files)
    except FileNotFoundError:
        return None
    except Corruption as error:
        _log.error("%s", error)
        return None


def signs_of_loss(
    unnamed: Iterable[UnnamedFile],
    highest_id: int,
    store: StoreRecord | None,
    marked: int | None,
    stored: int,
) -> list[str]:
    """Returns descriptions of what proves that the metadata have lost writes.

    `highest_id`: the highest id of a ledger's folder, 0 if there are no folders. `marked`,
    `stored`: the writes that the mark and the store count; None: the mark is missing.
    """
    signs = []
    if store is None:
        if highest_id:
            signs.append(f"ledger {highest_id} exists, but no store record")
        store = StoreRecord(next_ledger_id=highest_id + 1)
    if marked is None and LABELS in store.features:
        signs.append("the write mark is missing")
    if marked is not None and marked > stored:
        signs.append(f"{marked} writes were made, but only {stored} are stored")
    if store.next_ledger_id <= highest_id:
        signs.append(f"ledger {highest_id} exists, but the next id is {store.next_ledger_id}")
    raw = sorted({each.ledger_id for each in unnamed if each.is_raw})
    if raw:
        listed = ", ".join(map(str, raw))
        signs.append(f"no record names entries of {counted(len(raw), 'ledger')}: {listed}")
    return signs


def without_unfinished(
    ledgers: Mapping[int, LedgerRecord], topics: Collection[str], saved_ids: Collection[int]
) -> dict[int, LedgerRecord]:
    """Returns the ledgers without those in state DELETING that a lost write may have made live.

    These were being made, or a restore may have brought them back: a snapshot has them
    (`saved_ids`), or their topic has no record (`topics`), and the snapshot was deleted since.
    """

    def may_be_live(record: LedgerRecord) -> bool:
        is_back = record.ledger_id in saved_ids or record.topic not in topics
        return record.being_made or is_back

    return {
        ledger_id: record
        for ledger_id, record in ledgers.items()
        if record.state != LEDGER_STATE_DELETING or not may_be_live(record)
    }


def name_topics(
    ledgers_dir: Path,
    ledgers: Mapping[int, LedgerRecord],
    topics: Collection[str],
    files: Files,
    report: RecoveryReport,
) -> list[UnnamedFile]:
    """Reports the topics of the entries that no record names, once writes are lost.

    `topics`: those that have a record. Returns the files that no record names.
    """
    data_dir = ledgers_dir.parent
    known = without_unfinished(ledgers, topics, SnapshotFolder(data_dir, files).ledger_ids())
    unnamed = unnamed_files(ledgers_dir, known, files, split_by_unfinished(data_dir, files))
    by_topic: dict[str, set[int]] = {}
    for each in unnamed:
        topic = _topic_of(each, known.get(each.ledger_id), files) if each.holds_entries else ""
        if topic:
            by_topic.setdefault(topic, set()).add(each.ledger_id)
    for topic, ledger_ids in sorted(by_topic.items()):
        report.unrecorded[topic] = sorted(ledger_ids)
        _log.error("%s", MetadataLost(topic, report.unrecorded[topic]))
    return unnamed


def _topic_of(file: UnnamedFile, record: LedgerRecord | None, files: Files) -> str:
    """Returns the file's topic; "" if it is unknown, or if a run left the file unpublished."""
    if record is not None:
        is_its = file.is_raw and record.state != LEDGER_STATE_DELETING
        return record.topic if is_its else ""
    label: Label | None = None
    try:
        label = read_label(file.path.parent, files)
    except Corruption as error:
        _log.error("%s", error)
    return "" if label is None else label.topic
