"""The archive of a topic: a tar file with its records and the files of its ledgers.

It is a snapshot of one topic (docs/FORMATS.md, "Snapshots"): unpacked into a folder, it can be read
as one. The members, in this order:

    records    as a snapshot's; all of them are of the topic
    features   what a build must know to read it (storage/records.py), a name for each line
    files      of the ledgers, under the names that they have in a snapshot

An import adds the topic to a data directory that no other process uses. The ledgers keep their ids,
so that message ids stay the same, and none of the ids may be in use there; a snapshot may contain
such an id if its ledger is the same. They are listed as DELETING while their files are written and
verified; one synced write then makes them the topic's. So after a crash, either the topic is
complete, or the next start removes its files.

Bounds: BLOCK_BYTES of a file at a time; the records in memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, NamedTuple

from google.protobuf.message import Message

from ledgerfold.storage.archive_labels import complete_labels
from ledgerfold.storage.deletion_vector import VectorCache
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    InvalidRequest,
    LimitExceeded,
    NotAllowed,
    TopicExists,
    UnknownFeatures,
)
from ledgerfold.storage.files import Files
from ledgerfold.storage.limits import LABEL_BYTES_MAX
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import (
    LABEL,
    SNAPSHOT_RECORDS,
    deletion_vector_path,
    parse_segment_name,
    segment_path,
)
from ledgerfold.storage.partition_names import base_topic, parse_partition
from ledgerfold.storage.reader import LedgerReader
from ledgerfold.storage.records import FEATURES, decode_record
from ledgerfold.storage.removal import delete_left
from ledgerfold.storage.segment import tally_segment
from ledgerfold.storage.snapshot_folder import SnapshotFolder, checksum_of, decoded_records, flat
from ledgerfold.storage.snapshots import RECORDS_BYTES_MAX
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    CursorRecord,
    LedgerRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    SchemaRecord,
    SnapshotRecords,
    TopicRecord,
)

BLOCK_BYTES = 1024 * 1024
_READ_BYTES = 4 * 1024 * 1024
_FEATURES = "features"
_FEATURES_BYTES_MAX = 64 * 1024
_LEDGER_ID_MAX = 2**62
_OF_TOPICS = CursorRecord | ProducerRecord | RunRecord | SchemaRecord | LedgerRecord


class ArchivedFile(NamedTuple):
    """A file of a ledger: its path in the ledgers folder, where it is, and the bytes that count."""

    relative: str
    path: Path
    size_bytes: int


def archive_blocks(
    records: SnapshotRecords, features: Iterable[str], files: Iterable[ArchivedFile], disk: Files
) -> Iterator[bytes]:
    """Yields the blocks of an archive.

    Raises LimitExceeded before the first, DiskFailure, FileNotFoundError, Corruption.
    """
    data = records.SerializeToString()
    data = checksum_of(data) + data
    if len(data) > RECORDS_BYTES_MAX:
        what = f"Bytes of the records of {records.name}"
        raise LimitExceeded(what, len(data), RECORDS_BYTES_MAX, "Delete subscriptions or schemas.")
    yield from _member(SNAPSHOT_RECORDS, [data])
    yield from _member(_FEATURES, ["".join(f"{each}\n" for each in features).encode()])
    for file in files:
        yield _head(flat(file.relative), file.size_bytes)
        with closing(disk.open_read(file.path)) as opened:
            for offset in range(0, file.size_bytes, BLOCK_BYTES):
                size_bytes = min(BLOCK_BYTES, file.size_bytes - offset)
                block = opened.pread(size_bytes, offset)
                if len(block) < size_bytes:
                    raise Corruption(str(file.path), offset, f"{size_bytes} bytes", f"{len(block)}")
                yield block
        yield _padding(file.size_bytes)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _member(name: str, blocks: list[bytes]) -> Iterator[bytes]:
    size_bytes = sum(map(len, blocks))
    yield _head(name, size_bytes)
    yield from blocks
    yield _padding(size_bytes)


def _head(name: str, size_bytes: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size_bytes, 0o600
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size_bytes: int) -> bytes:
    return bytes(-size_bytes % tarfile.BLOCKSIZE)


class Imported(NamedTuple):
    """The topic of an archive, and what was imported."""

    topic: str
    ledgers: int
    messages: int


class TopicImport:
    """An import into a data directory that the caller has locked and recovered."""

    def __init__(self, path: Path, ledgers_dir: Path, metadata: MetadataStore, disk: Files) -> None:
        self._path, self._ledgers_dir = path, ledgers_dir
        self._metadata, self._disk = metadata, disk

    def run(self) -> Imported:
        """Imports the archive. On an error nothing of it is there, unless the last write may be
        durable: then the next start finds the whole topic, or removes what is there.

        Raises FileNotFoundError, Corruption, UnknownFeatures, IncompatibleFormat, TopicExists,
        NotAllowed (an id of a ledger is in use), LimitExceeded, DiskFailure.
        """
        try:
            with tarfile.open(self._path, "r|") as archive:
                data = self._member(archive, SNAPSHOT_RECORDS, RECORDS_BYTES_MAX)
                records = decoded_records(data, str(self._path), "an archive")
                features = self._features(archive)
                checked = _Checked(records, str(self._path))
                self._check_free(checked)
                self._list(checked)
                try:
                    self._extract(archive, checked)
                    self._verify(checked)
                    for feature in features:
                        self._metadata.need_feature(feature)
                except BaseException:
                    self._delete(checked)
                    raise
        except tarfile.TarError as error:
            raise self._damage(str(error)) from error
        try:
            with self._metadata.batch() as batch:
                for pair in records.pairs:
                    batch.put_encoded(pair.key, pair.value)
        except DiskFailure as error:
            if not error.may_be_durable:
                self._delete(checked)
            raise
        self._metadata.count_durably()
        return Imported(checked.topic, len(checked.ledgers), checked.messages)

    def _delete(self, checked: _Checked) -> None:
        """Deletes the ledgers as far as possible; a start deletes the rest."""
        delete_left(checked.ledgers, self._ledgers_dir, self._metadata, self._disk)

    def _damage(self, description: str) -> Corruption:
        return Corruption(str(self._path), 0, "the archive of a topic", description)

    def _content(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
        content = archive.extractfile(info) if info.isreg() else None
        if content is None:
            raise self._damage(f"{info.name}, which is no file")
        return content

    def _member(self, archive: tarfile.TarFile, name: str, bytes_max: int) -> bytes:
        info = archive.next()
        if info is None or info.name != name:
            raise self._damage("its end" if info is None else f"{info.name} instead of {name}")
        if info.size > bytes_max:
            raise LimitExceeded(f"Bytes of {name} in {self._path}", info.size, bytes_max, "")
        return self._content(archive, info).read()

    def _features(self, archive: tarfile.TarFile) -> list[str]:
        names = self._member(archive, _FEATURES, _FEATURES_BYTES_MAX).decode(errors="replace")
        unknown = sorted(set(names.split()) - FEATURES)
        if unknown:
            raise UnknownFeatures(unknown)
        return names.split()

    def _check_free(self, checked: _Checked) -> None:
        for name in sorted(checked.names):
            full_name = base_topic(name)
            if self._metadata.topic(name) or self._metadata.partitioned_topic(name):
                raise TopicExists(name)
            if self._metadata.partitioned_topic(full_name) or self._metadata.schemas(full_name):
                # A name may have schemas without a topic: two histories of versions do not mix.
                raise TopicExists(full_name)
        used = sorted(
            each
            for each in checked.ledgers
            if self._metadata.ledger(each) or self._disk.exists(self._ledgers_dir / str(each))
        )
        if used:
            listed = ", ".join(map(str, used[:10]))
            raise NotAllowed(
                f"Other topics have ledgers with the ids {listed} here, and message ids contain "
                "them. Import the topic into a new data directory."
            )
        self._check_snapshots(checked)

    def _check_snapshots(self, checked: _Checked) -> None:
        """Raises NotAllowed if a snapshot could not be restored after the import."""
        for name, saved in SnapshotFolder(self._ledgers_dir.parent, self._disk).ledgers():
            other = sorted(
                each
                for each, record in checked.ledgers.items()
                if saved.get(each, record) != record
            )
            if other:
                listed = ", ".join(map(str, other[:10]))
                raise NotAllowed(
                    f"Snapshot {name} has other ledgers with the ids {listed}: it could not be "
                    "restored after the import. Delete it, or import the topic into a new data "
                    "directory."
                )

    def _list(self, checked: _Checked) -> None:
        self._metadata.skip_ledger_ids(max(checked.ledgers, default=0))
        with self._metadata.batch() as batch:
            for record in checked.ledgers.values():
                batch.put_being_made(record)

    def _extract(self, archive: tarfile.TarFile, checked: _Checked) -> None:
        remaining = checked.files()
        folders = set[Path]()
        while (info := archive.next()) is not None:
            content = self._content(archive, info)
            relative, size_bytes = remaining.pop(info.name, ("", 0))
            if not relative or info.size > size_bytes:
                raise self._damage(f"{info.name} of {info.size} bytes, which no record names")
            path = self._ledgers_dir / relative
            if path.parent not in folders:
                folders.add(path.parent)
                self._disk.make_dir(path.parent)
            with closing(self._disk.create(path)) as file:
                while block := content.read(BLOCK_BYTES):
                    file.write([block])
                file.sync()
        # A label may be missing: those are written now.
        missing = [name for name in sorted(remaining) if not name.endswith(LABEL)]
        if missing:
            raise self._damage(f"no {missing[0]}")
        complete_labels(checked.decoded, self._ledgers_dir, self._disk)
        for folder in folders:
            self._disk.sync_dir(folder)
        self._disk.sync_dir(self._ledgers_dir)

    def _verify(self, checked: _Checked) -> None:
        """Reads every entry. Raises Corruption, MissingFile."""
        vectors = VectorCache(self._ledgers_dir, self._disk)
        for record in checked.ledgers.values():
            for segment in record.segments:
                path = self._ledgers_dir / segment.path
                tally = tally_segment(path, segment, self._disk)
                if (tally.checksum, tally.entries) != (segment.checksum, segment.entries):
                    raise self._damage(f"other entries in {flat(segment.path)}")
            reader = LedgerReader(
                lambda record=record: record,  # type: ignore[misc]
                lambda path: self._disk.open_read(self._ledgers_dir / path),
                bytearray(),
                vectors,
            )
            position, last = EARLIEST, reader.last
            while last is not None and position <= last:
                entries = reader.read(position, bytes_max=_READ_BYTES, end=LATEST)
                checked.messages += sum(each.header.message_count for each in entries)
                position = entries[-1].header.position.next if entries else LATEST


class _Checked:
    """The records of an archive, which are all of one topic. Raises Corruption."""

    def __init__(self, records: SnapshotRecords, path: str) -> None:
        self._path, self.messages = path, 0
        self.topic = records.name
        self.ledgers: dict[int, LedgerRecord] = {}
        self.decoded = decoded = [decode_record(pair.key, pair.value) for pair in records.pairs]
        kinds = TopicRecord | PartitionedTopicRecord
        self.names = {each.name for each in decoded if isinstance(each, kinds)} | {self.topic}
        for record in decoded:
            self._check(record)
        named = {
            ledger_id
            for each in decoded
            if isinstance(each, TopicRecord)
            for ledger_id in (*each.ledger_ids, *_compacted_id(each))
        }
        if named != self.ledgers.keys():
            raise self._bad("the ledgers of other topics")

    def _bad(self, description: str) -> Corruption:
        return Corruption(self._path, 0, "records of one topic", description)

    def _check(self, record: Message) -> None:
        if isinstance(record, TopicRecord | PartitionedTopicRecord):
            partition = parse_partition(record.name)
            if record.name != self.topic and (partition is None or partition.topic != self.topic):
                raise self._bad(f"one of {record.name}")
            return
        if not isinstance(record, _OF_TOPICS) or record.topic not in self.names:
            raise self._bad(f"a {type(record).__name__} of another topic")
        if not isinstance(record, LedgerRecord):
            return
        self.ledgers[record.ledger_id] = record
        names = [parse_segment_name(each.path.rpartition("/")[2]) for each in record.segments]
        is_closed = record.state == LEDGER_STATE_CLOSED
        is_its = is_closed and 0 < record.ledger_id < _LEDGER_ID_MAX
        is_its &= all(
            number is not None
            and not each.HasField("key_index")
            and each.path == segment_path(record.ledger_id, number)
            for number, each in zip(names, record.segments, strict=True)
        )
        if not is_its:
            raise self._bad(f"ledger {record.ledger_id}, open or with files elsewhere")

    def files(self) -> dict[str, tuple[str, int]]:
        """Returns the path in the ledgers folder of each member, and the size that it has at
        most.
        """
        return {
            flat(path): (path, size_bytes)
            for record in self.ledgers.values()
            for path, size_bytes in _sizes(record)
        }


def _sizes(record: LedgerRecord) -> Iterator[tuple[str, int]]:
    for segment in record.segments:
        yield segment.path, segment.size_bytes
        if segment.HasField("dead"):
            yield deletion_vector_path(segment.path), segment.dead.size_bytes
    if record.segments:
        yield f"{record.ledger_id}/{LABEL}", LABEL_BYTES_MAX


def _compacted_id(topic: TopicRecord) -> list[int]:
    return [topic.compacted.ledger_id] if topic.compacted.ledger_id > 0 else []


def check_is_ours(topic: TopicRecord) -> None:
    """Raises InvalidRequest for a Kafka topic, which has an export of its own."""
    if topic.HasField("kafka"):
        raise InvalidRequest(
            f"{topic.name} is a Kafka topic: `ledgerfold export kafka-log` exports it."
        )
