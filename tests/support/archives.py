"""The archive of a topic, as `topics export` writes it, from a disk in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

from ledgerfold.storage.records import STORE_KEY, WRITES_KEY
from ledgerfold.storage.topic_archive import ArchivedFile, TopicImport, archive_blocks
from ledgerfold.v1.records_pb2 import SnapshotRecords
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.support.offline import LEDGERS


def archive_blocks_of(lab: BrokerLab, topic: str = TOPIC) -> Iterator[bytes]:
    """Yields the blocks of the archive of the only topic of a broker that has stopped."""
    records = SnapshotRecords(name=topic)
    for key, value in lab.metadata.pairs():
        if key not in (STORE_KEY, WRITES_KEY):
            records.pairs.add(key=key, value=value)
    files = []
    for folder in lab.files.listdir(LEDGERS):
        for name in lab.files.listdir(LEDGERS / folder):
            path = LEDGERS / folder / name
            files.append(ArchivedFile(f"{folder}/{name}", path, lab.files.size(path)))
    return archive_blocks(records, ["pulsar-entries"], files, lab.files)


def copy_topic(source: BrokerLab, target: BrokerLab) -> None:
    """Imports the archive of the only topic of a broker that has stopped into another directory."""
    with NamedTemporaryFile() as file:
        file.writelines(archive_blocks_of(source))
        file.flush()
        TopicImport(Path(file.name), LEDGERS, target.metadata, target.files).run()
