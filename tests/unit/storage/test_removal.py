"""Tests the removal of ledgers, and files that no record names: left over, or stored and lost by
the metadata.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.records_pb2 import LEDGER_STATE_OPEN
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import everything

LEDGERS = DATA / "ledgers"


def stored(lab: BrokerLab) -> list[Path]:
    """Two ledgers of a topic; the segments of both."""
    for value in (b"1", b"2"):
        lab.publish([([Message(b"k", value)], False)])
        lab.run(lab.topic.log.tail.roll())
    return [
        LEDGERS / folder / name
        for folder in lab.files.listdir(LEDGERS)
        for name in lab.files.listdir(LEDGERS / folder)
        if name != "label"
    ]


def forget(lab: BrokerLab, ledger_id: int) -> None:
    """Deletes the ledger's record and restores the topic's old one, as damage to the metadata
    would.
    """
    topic = lab.topic.record
    topic.ledger_ids.remove(ledger_id)
    with lab.metadata.batch() as batch:
        batch.delete("ledger", ledger_id)
        batch.put(topic)


@pytest.mark.parametrize("starts", [1, 2])
def test_entries_that_the_metadata_have_lost_are_kept_and_reported(
    starts: int, caplog: pytest.LogCaptureFixture
) -> None:
    """They stay in place, at each start; their topic is not served (test_lost_metadata.py)."""
    lab = BrokerLab()
    paths = stored(lab)
    data = lab.files.open_read(paths[0]).pread(1 << 20, 0)
    forget(lab, int(paths[0].parent.name))
    for _ in range(starts):
        lab.crash(everything)
        assert lab.report.preserved == [str(paths[0])]
        assert lab.report.unrecorded == {TOPIC: [1]}
    assert "have lost their last writes" in caplog.text
    assert lab.files.open_read(paths[0]).pread(1 << 20, 0) == data
    lab.stop()


def test_the_id_of_an_existing_folder_is_never_assigned() -> None:
    """Also where the metadata went back to a time before it."""
    lab = BrokerLab()
    paths = stored(lab)
    ids = [int(path.parent.name) for path in paths]
    store = lab.metadata.store()
    assert store is not None
    store.next_ledger_id = 1
    with lab.metadata.batch() as batch:
        batch.put(store)
    forget(lab, ids[0])
    lab.crash(everything)
    assert MetadataStore(lab._pairs).allocate_ledger_id() > max(ids)
    lab.stop()


def test_the_remains_of_a_run_are_removed() -> None:
    """Its entries are copies: no view ever contained them."""
    lab = BrokerLab()
    paths = stored(lab)
    data = lab.files.open_read(paths[0]).pread(1 << 20, 0)
    lab.files.make_dir(LEDGERS / "60")
    lab.files.sync_dir(LEDGERS)
    file = lab.files.create(LEDGERS / "60" / "00000000000000000000.log")
    file.write([data])
    file.sync()
    lab.files.sync_dir(LEDGERS / "60")
    lab.crash(everything)
    assert lab.report.orphans == ["60"]
    assert not lab.report.preserved
    lab.stop()


@pytest.mark.parametrize("is_trimmed", [True, False])
def test_a_folder_that_cannot_be_removed_keeps_no_other(is_trimmed: bool) -> None:
    """The next deletion removes it, too."""
    lab = BrokerLab()
    stored(lab)
    lab.consume(2, read_compacted=False)
    lab.files.during = failing(f"remove_dir {LEDGERS / '1'}")
    with pytest.raises(DiskFailure):
        lab.run(lab.topic.trim() if is_trimmed else lab.broker.delete_topic(TOPIC, force=True))
    assert lab.files.listdir(LEDGERS) == ["1"]
    lab.files.during = lambda call: None
    lab.store.delete_all_files(())
    assert lab.files.listdir(LEDGERS) == []
    assert {each.state for each in lab.metadata.ledgers()} <= {LEDGER_STATE_OPEN}
    lab.stop()


def failing(wanted: str) -> Callable[[str], None]:
    """Returns what fails each such call to the disk."""

    def fail(call: str) -> None:
        if call == wanted:
            raise DiskFailure(call, "remove", OSError(errno.EIO, "why"))

    return fail
