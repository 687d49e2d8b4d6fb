"""`explain` over real ledgers: damage names its ledger, partitions are explained together, and a
scan without a client ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.explain.scan import Explainer, _Scan
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import HEADER_BYTES, read_header
from ledgerfold.storage.errors import (
    AlreadyClosed,
    CompactedLedgerDamaged,
    Corruption,
    InvalidRequest,
)
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.explain_pb2 import ExplainRequest, ExplainResponse
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message

MESSAGES = [([Message(b"a", b"1")], False), ([Message(b"a", b"2")], False)]
REQUEST = ExplainRequest(topic=TOPIC, key=b"a")


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    """Compacted, raw data kept by a subscription."""
    lab = BrokerLab()
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    lab.publish(MESSAGES)
    lab.compact()
    yield lab
    lab.stop()


def explain(lab: BrokerLab, request: ExplainRequest = REQUEST) -> ExplainResponse:
    return lab.run(Explainer(lab.broker).explain([lab.topic], request))


def damage_keys(lab: BrokerLab, ledger_id: int) -> None:
    folder = DATA / "ledgers" / str(ledger_id)
    path: Path = folder / lab.files.listdir(folder)[0]
    at = HEADER_BYTES + 1
    lab.files.damage(path, lambda data: data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])


def test_damage_of_the_compacted_ledger_is_reported_for_the_view(lab: BrokerLab) -> None:
    """As for a reader: the error names the way back, and the next question gets it at once."""
    damage_keys(lab, lab.topic.record.compacted.ledger_id)
    for _ in range(2):
        with pytest.raises(CompactedLedgerDamaged):
            explain(lab)


def test_damage_of_a_raw_ledger_is_not_reported_for_the_view(lab: BrokerLab) -> None:
    """The error names file and offset; the compacted view is unchanged."""
    damage_keys(lab, lab.topic.record.ledger_ids[0])
    with pytest.raises(Corruption):
        explain(lab)
    assert not lab.topic.log.views.has_damage


def test_a_request_must_state_what_to_explain(lab: BrokerLab) -> None:
    """Nothing is not taken for "messages without a key"."""
    with pytest.raises(InvalidRequest):
        explain(lab, ExplainRequest(topic=TOPIC))


def test_an_abandoned_scan_ends(lab: BrokerLab) -> None:
    """At the next entry."""
    scan = _Scan(lab.broker, lab.topic, versions_max=10)
    scan.is_abandoned.set()
    with pytest.raises(AlreadyClosed):
        scan.answer(REQUEST)


def test_partitions_are_explained_one_after_another(lab: BrokerLab) -> None:
    """Ids name the partition, notes its topic; the bound is one for all."""
    name = "persistent://public/default/p"
    lab.run(lab.broker.create_partitioned_topic(name, 2))

    async def publish() -> list[Topic]:
        topics = [await lab.broker.topic(each) for each in lab.broker.partitions.names(name)]
        for topic in topics:
            for value in (b"1", b"2"):
                entry = memoryview(lab.entry([Message(b"a", value)], is_batch=False))
                header = read_header(entry)
                topic.log.tail.append(header, (entry[header.header_bytes :],), 1)
            await topic.log.commit.flush()
        return topics

    topics = lab.run(publish())
    answer = lab.run(Explainer(lab.broker).explain(topics, REQUEST))
    assert [version.id.partition for version in answer.versions] == [0, 0, 1, 1]
    assert {note.partition(": ")[0] for note in answer.notes} == {topic.name for topic in topics}
