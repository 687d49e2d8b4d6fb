"""A ledger whose first write fails leaves nothing that a look at the directory would report."""

from __future__ import annotations

import contextlib

import pytest

from ledgerfold.storage.errors import DiskFailure
from tests.model.broker_lab import DATA, BrokerLab
from tests.model.log_model import Message
from tests.support.offline import Offline, taken


@pytest.mark.parametrize("call", range(1, 9))
def test_a_failed_first_write_leaves_no_damage(call: int) -> None:
    """Not even a label that has been begun: there is no entry. Disks had failed, and directories
    been looked at, never one after the other.
    """
    lab = BrokerLab()
    lab.files.fail_at(call)
    with contextlib.suppress(DiskFailure):
        lab.publish([([Message(b"a", b"1")], False)])
    lab._drop()
    files, pairs = taken(lab.files, lab._pairs).disk()
    offline = Offline(DATA, pairs, files)
    assert offline.damage() == []
    assert offline.plan().steps == []
