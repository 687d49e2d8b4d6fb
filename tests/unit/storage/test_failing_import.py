"""An import that fails at one of its calls to the disk leaves nothing behind."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.topic_archive import TopicImport
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.archives import archive_blocks_of
from tests.support.offline import LEDGERS


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    lab = BrokerLab()
    lab.publish([([Message(b"k", b"%d" % number)], False) for number in range(7)])
    lab.compact()
    lab.stop()
    path = tmp_path / "t.topic"
    path.write_bytes(b"".join(archive_blocks_of(lab)))
    return path


def calls_of(lab: BrokerLab, archive: Path) -> int:
    """Imports the archive; returns the number of calls to the disk."""
    before = len(lab.files.calls)
    try:
        TopicImport(archive, LEDGERS, lab.metadata, lab.files).run()
    finally:
        lab.files.during = lambda call: None
    return len(lab.files.calls) - before


@pytest.mark.parametrize("may_be_durable", [False, True])
def test_a_failed_import_leaves_nothing(archive: Path, may_be_durable: bool) -> None:
    """If the last write may be durable, the next start decides."""
    lab = BrokerLab()
    # The last one counts the writes durably: the topic is there, whether it succeeds or not.
    calls = calls_of(lab, archive) - 1
    lab.stop()
    for number in range(1, calls + 1):
        lab = BrokerLab()
        failing = len(lab.files.calls) + number

        def fail(call: str, lab: BrokerLab = lab, failing: int = failing) -> None:
            if len(lab.files.calls) == failing:
                cause = OSError(errno.EIO, "why")
                raise DiskFailure(call, "A call", cause, may_be_durable=may_be_durable)

        lab.files.during = fail
        with pytest.raises(DiskFailure):
            calls_of(lab, archive)
        is_left = may_be_durable and number == calls
        assert bool(lab.files.listdir(LEDGERS)) == is_left, number
        assert bool(lab.metadata.ledgers()) == is_left, number
        lab.restart()
        assert lab.files.listdir(LEDGERS) == []
        assert lab.metadata.topic(TOPIC) is None
        lab.stop()
