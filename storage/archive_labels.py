"""The labels of the ledgers of an imported archive (storage/topic_archive.py).

Ledgers of version 0.1 have no labels. An import creates them, as the first start of their directory
would. Labels in an archive must name their own ledger, because a repair trusts labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import Message

from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.files import Files
from ledgerfold.storage.label import label_in_place, read_label, write_first_label
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.v1.records_pb2 import (
    LedgerRecord,
    PartitionedTopicRecord,
    RunRecord,
    TopicRecord,
)


def complete_labels(records: Sequence[Message], ledgers_dir: Path, files: Files) -> None:
    """Writes the labels that ledgers lack, and checks the others. The caller syncs the folders.

    Raises Corruption, DiskFailure.
    """
    topics = {each.name: each for each in records if isinstance(each, TopicRecord)}
    partitioned = {
        each.name: each.partitions for each in records if isinstance(each, PartitionedTopicRecord)
    }
    for record in records:
        if not isinstance(record, LedgerRecord) or not record.segments:
            continue
        folder = ledgers_dir / str(record.ledger_id)
        label = read_label(folder, files)
        if label is not None:
            if (label.ledger_id, label.kind, label.topic) != (
                record.ledger_id, record.kind, record.topic,
            ):  # fmt: skip
                expected = f"the label of ledger {record.ledger_id} of {record.topic}"
                found = f"the label of ledger {label.ledger_id} of {label.topic}"
                raise Corruption(str(folder), 0, expected, found)
            continue
        partition = parse_partition(record.topic)
        partitions = 0 if partition is None else partitioned.get(partition.topic, 0)
        runs = (each for each in records if isinstance(each, RunRecord))
        own = (each for each in runs if each.topic == record.topic)
        complete = label_in_place(record, topics[record.topic], own, partitions)
        write_first_label(folder, complete, files)
