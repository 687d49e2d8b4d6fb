"""`demo addresses` and `demo prices`: the worked examples, with each message shown.

On a Kafka topic, `addresses` shows a clean tail, a dirty head, and the offset map built from the
head. Offsets are counted from 1, as in the text of Kafka's documentation. In `prices` the last
record is in the active segment, and is therefore retained.
"""

from __future__ import annotations

from ledgerfold.broker.cli.demo.stage import Stage, verdict
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.output import message_id_text
from ledgerfold.broker.cli.tables import aligned
from ledgerfold.broker.common.names import TopicName, persistent_topic
from ledgerfold.broker.demo.examples import ADDRESSES, PRICES, Pairs, compacted


def addresses(stage: Stage) -> int:
    return _clean_addresses(stage) if stage.is_kafka else _compact(stage, ADDRESSES)


def prices(stage: Stage) -> int:
    return _clean_prices(stage) if stage.is_kafka else _compact(stage, PRICES)


def _compact(stage: Stage, pairs: Pairs) -> int:
    ids = stage.publish_pairs(pairs)
    if stage.compact() != DONE:
        return FAILED
    for title, is_compacted in (("before", False), ("after", True)):
        rows = [
            {
                "id": message_id_text(message.message_id()),
                "key": message.partition_key(),
                "value": message.data().decode(),
            }
            for message in stage.read(compacted=is_compacted)
        ]
        print(f"\n{title}\n{aligned(rows)}")
    remaining = [(row["id"], row["key"], row["value"]) for row in rows]
    expected = [(message_id_text(ids[index]), key, value) for index, key, value in compacted(pairs)]
    print()
    wrong = [] if remaining == expected else [f"{remaining} instead of {expected}"]
    return verdict(wrong, "of each key the last message, in order, under its own id")


def _clean_addresses(stage: Stage) -> int:
    stage.create_log()
    stage.publish_pairs(ADDRESSES[:3])
    stage.roll()
    stage.clean()
    stage.publish_pairs(ADDRESSES[3:])
    stage.roll()
    (plan,) = stage.admin.kafka.plan_cleaning(stage.topic, with_map=True)
    tail = f"{plan.log_start_offset + 1} to {plan.first_dirty_offset}"
    head = f"{plan.first_dirty_offset + 1} to {plan.bound_offset}"
    offset_map = [(key.decode(), offset + 1) for offset, key in plan.map_entries]
    print(f"tail        offsets {tail}, {plan.clean_bytes} bytes (counted from 1)")
    print(f"head        offsets {head}, {plan.cleanable_bytes} bytes")
    print(f"ratio       {plan.ratio:.2f}")
    print("map         " + ", ".join(f"{key} -> {offset}" for key, offset in offset_map))
    stage.clean()
    remaining = _rows(stage, first=1)
    _print(remaining)
    wrong = _unlike("the tail", tail, "1 to 3") + _unlike("the head", head, "4 to 6")
    wrong += _unlike("the map", offset_map, [("1002", 4), ("1001", 6)])
    wrong += _unlike("the log", remaining, [(at, *ADDRESSES[at - 1]) for at in (3, 4, 6)])
    return verdict(wrong, "offsets 3, 4 and 6 are left, each key once")


def _clean_prices(stage: Stage) -> int:
    stage.create_log()
    stage.publish_pairs(PRICES[:-1])
    stage.roll()
    stage.publish_pairs(PRICES[-1:])
    stage.clean()
    remaining = _rows(stage)
    version, _, *entries = stage.admin.kafka.cleaner().checkpoint_file.splitlines()
    name = TopicName.parse(persistent_topic(stage.topic)).local
    own = [each for each in entries if each.rpartition(" ")[0] == f"{name} 0"]
    print(f"checkpoint  version {version}: {', '.join(own)}")
    _print(remaining)
    wrong = _unlike("the log", remaining, [(at, *PRICES[at]) for at in (2, 4, 5, 6)])
    wrong += _unlike("the checkpoint", (version, own), ("0", [f"{name} 0 6"]))
    return verdict(wrong, "p3:11 p6:12 p5:14 are left, p5:17 stays in the active segment")


def _rows(stage: Stage, first: int = 0) -> list[tuple[int, str, str]]:
    """Returns the records from the log start: offset, counted from `first`, key, value."""
    return [
        ((message.offset() or 0) + first, message.partition_key(), message.data().decode())
        for message in stage.read(compacted=False)
    ]


def _print(records: list[tuple[int, str, str]]) -> None:
    rows = [{"offset": offset, "key": key, "value": value} for offset, key, value in records]
    print(f"\n{aligned(rows) if rows else '(nothing is left)'}\n")


def _unlike(subject: str, actual: object, expected: object) -> list[str]:
    return [] if actual == expected else [f"{subject}: {actual} instead of {expected}"]
