"""The upgrade of a data directory to this build's store version (docs/FORMATS.md, "Versions").

Version 3 records features, and every ledger folder has a label. A directory of version 1 or 2 gets
the labels at its first start; then the store record gets version 3, and builds that do not know it
refuse the directory. After a crash in between, the next start continues.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ledgerfold.storage.files import Files
from ledgerfold.storage.label import label_in_place, write_label
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import KAFKA_TOPICS, LABELS, STORE_VERSION
from ledgerfold.storage.text import counted
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    StoreRecord,
    TopicRecord,
)

_log = logging.getLogger(__name__)


def upgrade(ledgers_dir: Path, metadata: MetadataStore, files: Files) -> None:
    """Upgrades a directory of an older version. Raises DiskFailure."""
    store = metadata.store()
    if store is None or store.store_version >= STORE_VERSION:
        return
    topics = {each.name: each for each in metadata.topics()}
    labelled = 0
    for record in metadata.ledgers():
        folder = ledgers_dir / str(record.ledger_id)
        if record.state != LEDGER_STATE_DELETING and files.exists(folder):
            topic = topics.get(record.topic, TopicRecord())
            runs, partitions = metadata.runs(topic.name), metadata.siblings(topic.name)
            write_label(folder, label_in_place(record, topic, runs, partitions), files)
            files.sync_dir(folder)
            labelled += 1
    features = [LABELS]
    if any(each.HasField("kafka") for each in topics.values()):
        features.append(KAFKA_TOPICS)

    def edit(changed: StoreRecord) -> None:
        changed.store_version = STORE_VERSION
        changed.features[:] = features

    metadata.change_store(edit)
    _log.info(
        "%s now has store version %d, which older builds refuse; %s labelled.",
        ledgers_dir.parent,
        STORE_VERSION,
        counted(labelled, "ledger"),
    )
