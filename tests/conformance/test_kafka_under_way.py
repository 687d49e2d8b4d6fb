"""Kafka's cleaner beside a producer that does not wait for it."""

from __future__ import annotations

import base64
import random
import threading
from typing import Any

from tests.cases.ledgerfold import Brokers
from tests.cases.lexer import Place
from tests.cases.model import Case

TOPIC = "persistent://public/default/t99"
MESSAGES, KEYS, BATCH = 3000, 600, 20
CASE = Case("T99", "End to end with random data", Place("-", 1, 1), is_kafka=True)


def _history() -> list[tuple[int, int | None]]:
    chance = random.Random(99)
    return [
        (chance.randrange(KEYS), None if chance.random() < 0.3 else at) for at in range(MESSAGES)
    ]


def _record(key: int, value: int | None) -> dict[str, str]:
    asked = {"keyB64": base64.b64encode(b"%d" % key).decode()}
    if value is not None:
        asked["valueB64"] = base64.b64encode(b"%d" % value).decode()
    return asked


def _text(record: dict[str, Any], name: str) -> int | None:
    return int(base64.b64decode(record[name])) if name in record else None


def test_t99_end_to_end_with_random_data(brokers: Brokers) -> None:
    """Compares a consumer's final state with the last state of each key; fewer records, in
    order.
    """
    history = _history()
    with brokers.target(CASE) as target:
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0",
            "internal.segment.bytes": "20000",
        }
        target.ask("kafka-create", topic=TOPIC, config=config)

        def produce() -> None:
            for at in range(0, MESSAGES, BATCH):
                records = [_record(*each) for each in history[at : at + BATCH]]
                target.ask("kafka-append", topic=TOPIC, batches=[{"records": records}])

        producer = threading.Thread(target=produce)
        producer.start()
        turns = [target.ask("kafka-clean", topic=TOPIC)]
        while producer.is_alive():
            turns.append(target.ask("kafka-clean", topic=TOPIC))
        producer.join()
        target.ask("kafka-roll", topic=TOPIC)
        turns.append(target.ask("kafka-clean", topic=TOPIC))
        read = target.ask("kafka-read", topic=TOPIC)["records"]
        target.ask("delete", topic=TOPIC, force=True)
    assert [turn["failure"] for turn in turns if turn["failure"]] == []
    assert turns[-1]["log"] is not None
    offsets = [each["offset"] for each in read]
    assert offsets == sorted(set(offsets))
    assert len(read) < MESSAGES
    assert [(_text(each, "keyB64"), _text(each, "valueB64")) for each in read] == [
        history[offset] for offset in offsets
    ]
    left = {_text(each, "keyB64"): _text(each, "valueB64") for each in read}
    assert left == dict(history)
