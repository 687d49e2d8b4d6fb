"""`topics stats-internal` shows which ledgers are damaged: raw, compacted, and cleaned ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerfold.broker.rpc.admin_topics import TopicHandlers
from ledgerfold.broker.stats.topic import add_damage
from ledgerfold.v1.admin_pb2 import GetTopicInternalStatsRequest
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.kafka_lab import KafkaLab
from tests.support.lossy_files import everything

MESSAGES = [([Message(b"a", b"1")], False), ([Message(b"a", b"2")], False)]


def asked(lab: BrokerLab) -> dict[str, Any]:
    request = GetTopicInternalStatsRequest(topic=TOPIC)
    answer = lab.run(TopicHandlers(lab.broker).internal_stats(request))
    told: dict[str, Any] = json.loads(answer.json)
    return told


def remove_files(lab: BrokerLab, ledger_id: int) -> None:
    lab.files.remove_dir(DATA / "ledgers" / str(ledger_id))


def test_a_ledger_without_its_files_is_damaged() -> None:
    """The damage shows before any read; the open ledger has none, although its file grows."""
    lab = BrokerLab()
    lab.publish(MESSAGES)
    first = lab.topic.record.ledger_ids[0]
    lab.run(lab.broker.unload_topic(TOPIC))
    lab.publish(MESSAGES)
    assert not any("damage" in each for each in asked(lab)["ledgers"])
    remove_files(lab, first)
    damaged, *whole = asked(lab)["ledgers"]
    assert (damaged["ledgerId"], len(whole)) == (first, 1)
    assert "is missing" in damaged["damage"]
    assert "damage" not in whole[0]
    lab.stop()


def test_damage_found_at_start_is_shown() -> None:
    """In an open ledger, whose files are all there."""
    lab = BrokerLab()
    lab.publish(MESSAGES)
    lab.publish(MESSAGES)
    ledger_id = lab.topic.record.ledger_ids[-1]
    folder = DATA / "ledgers" / str(ledger_id)
    path = folder / next(iter(lab.files.listdir(folder)))
    lab.crash(everything, lambda: lab.files.damage(path, lambda data: b"?" + data[1:]))
    assert set(lab.report.damaged) == {ledger_id}
    (told,) = (each for each in asked(lab)["ledgers"] if each["ledgerId"] == ledger_id)
    assert "is damaged" in told["damage"]
    lab.stop()


def test_damage_of_a_kafka_segment_is_shown() -> None:
    """Cleaned or not, its line shows the damage."""
    lab = KafkaLab({"cleanup.policy": "compact"})
    lab.add([(b"a", b"1")])
    lab.run(lab.kafka.roll())
    lab.add([(b"a", b"2")])
    first = asked(lab)["kafka"]["segmentList"][0]
    assert "damage" not in first
    remove_files(lab, first["ledgerIds"][0])
    damaged, active = asked(lab)["kafka"]["segmentList"]
    assert "is missing" in damaged["damage"]
    assert "damage" not in active
    lab.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_ledger_that_is_trimmed_meanwhile_is_not_missing(is_there: bool) -> None:
    """It was asked about, and is none of the topic's any more."""
    lab = BrokerLab()
    rows: list[dict[str, Any]] = [{"ledgerId": 77}]
    lab.run(add_damage(rows, lambda row: [row["ledgerId"]], lab.broker, lambda _: is_there))
    assert ("damage" in rows[0]) == is_there
    lab.stop()
