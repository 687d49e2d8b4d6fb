"""When raw ledgers go, and by what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.storage.entry import Position
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_what_a_run_has_covered_goes_with_its_commit(lab: BrokerLab) -> None:
    """Though the run counts as on its way until that has ended. Tests of trimming had asked for
    it by a call of its own, behind the run.
    """
    lab.publish([([Message(b"%d" % (n % 5), b"v")], False) for n in range(20)])
    run = lab.compact()
    assert run is not None
    lab.settle()
    horizon = Position(run.horizon.ledger_id, run.horizon.entry_id)
    assert [each for each in lab.topic.record.ledger_ids if each < horizon.ledger_id] == []
