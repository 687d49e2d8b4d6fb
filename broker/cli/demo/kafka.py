"""`demo ... --cleanup-policy compact`: the demonstrations on a Kafka topic, cleaned step by step.

* `addresses`: a clean tail, a dirty head, and the offset map that is built of it. Offsets are
  counted from 1, as in the text of Kafka's documentation.
* `prices`: the last record is in the active segment, and is retained whatever its key.
* `git`: the cleaned log of a repository's history equals its tree, except for tombstones.

The topic's dirty ratio prevents automatic cleaning: the demonstration starts each turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.data.producing import Outgoing
from ledgerfold.broker.cli.demo.stage import Stage, differences, verdict
from ledgerfold.broker.cli.tables import aligned
from ledgerfold.broker.cli.units import format_size
from ledgerfold.broker.demo.examples import ADDRESSES, PRICES
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client.administration.kafka_answers import CleanerTurn

_NO_AUTOMATIC_CLEANING = {"min.cleanable.dirty.ratio": "1"}
Pairs = Iterable[tuple[str, str]]


class KafkaStage:
    """The Kafka topic of a demonstration, and turns of the cleaner on it."""

    def __init__(self, stage: Stage) -> None:
        from ledgerfold.broker.client.administration.admin import Admin

        self.stage, self.topic = stage, stage.topic
        self.admin = Admin(stage.url)
        config = {"cleanup.policy": stage.options.cleanup_policy, **_NO_AUTOMATIC_CLEANING}
        self.admin.create_topic(self.topic, kafka=config)

    def __enter__(self) -> KafkaStage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.admin.close()

    def publish(self, pairs: Pairs) -> None:
        self.stage.publish((Outgoing(k, v.encode()) for k, v in pairs), batching=False)

    def roll(self) -> None:
        """Rolls the active segment, so that its records can be cleaned."""
        base = self.admin.kafka.roll_segment(self.topic)
        print(f"rolled      the active segment begins at offset {base}")

    def clean(self) -> None:
        """Runs turns until everything cleanable is clean. Raises LedgerfoldError if one fails."""
        from ledgerfold.broker.cli.connecting import why_waiting

        if why := why_waiting(self.admin):
            print(f"cleaning    {why}", flush=True)
        while (turn := self._turn()).checkpoint is not None:
            (plan,) = self.admin.kafka.plan_cleaning(self.topic)
            if not plan.cleanable_bytes:
                return
        raise LedgerfoldError(f"The round failed: {turn.failure or 'it was aborted'}.")

    def _turn(self) -> CleanerTurn:
        turn = self.admin.kafka.clean(self.topic)
        if turn.stats is not None:
            stats = turn.stats
            print(
                f"cleaned     {stats.messages_read:,} -> {stats.messages_written:,} messages, "
                f"{format_size(stats.bytes_read)} -> {format_size(stats.bytes_written)}, "
                f"{counted(stats.map_keys, 'key')} in the map, checkpoint {turn.checkpoint}"
            )
        return turn

    def left(self, first: int = 0) -> list[tuple[int, str, str]]:
        """Returns the records from the log start: offset, counted from `first`, key, value."""
        return [
            ((message.offset() or 0) + first, message.partition_key(), message.data().decode())
            for message in self.stage.read(compacted=False)
        ]


def addresses(stage: Stage) -> int:
    with KafkaStage(stage) as kafka:
        kafka.publish(ADDRESSES[:3])
        kafka.roll()
        kafka.clean()
        kafka.publish(ADDRESSES[3:])
        kafka.roll()
        (plan,) = kafka.admin.kafka.plan_cleaning(kafka.topic, with_map=True)
        tail = f"{plan.log_start_offset + 1} to {plan.first_dirty_offset}"
        head = f"{plan.first_dirty_offset + 1} to {plan.bound_offset}"
        offset_map = [(key.decode(), offset + 1) for offset, key in plan.map_entries]
        print(f"tail        offsets {tail}, {plan.clean_bytes} bytes (counted from 1)")
        print(f"head        offsets {head}, {plan.cleanable_bytes} bytes")
        print(f"ratio       {plan.ratio:.2f}")
        print("map         " + ", ".join(f"{key} -> {offset}" for key, offset in offset_map))
        kafka.clean()
        left = kafka.left(first=1)
    _print(left)
    wrong = _unlike("the tail", tail, "1 to 3") + _unlike("the head", head, "4 to 6")
    wrong += _unlike("the map", offset_map, [("1002", 4), ("1001", 6)])
    wrong += _unlike("the log", left, [(at, *ADDRESSES[at - 1]) for at in (3, 4, 6)])
    return verdict(wrong, "offsets 3, 4 and 6 are left, each key once")


def prices(stage: Stage) -> int:
    from ledgerfold.broker.common.names import TopicName, persistent_topic

    with KafkaStage(stage) as kafka:
        kafka.publish(PRICES[:-1])
        kafka.roll()
        kafka.publish(PRICES[-1:])
        kafka.clean()
        left = kafka.left()
        written = kafka.admin.kafka.cleaner().checkpoint_file
        name = TopicName.parse(persistent_topic(kafka.topic)).local
    version, _, *entries = written.splitlines()
    own = [each for each in entries if each.rpartition(" ")[0] == f"{name} 0"]
    print(f"checkpoint  version {version}: {', '.join(own)}")
    _print(left)
    wrong = _unlike("the log", left, [(at, *PRICES[at]) for at in (2, 4, 5, 6)])
    wrong += _unlike("the checkpoint", (version, own), ("0", [f"{name} 0 6"]))
    return verdict(wrong, "p3:11 p6:12 p5:14 are left, p5:17 stays in the active segment")


def git(stage: Stage) -> int:
    from ledgerfold.broker.demo import git_history

    repository = stage.options.repository
    commit = git_history.last_commit(repository)
    with KafkaStage(stage) as kafka:
        history = (
            Outgoing(change.path, change.value)
            for change in git_history.changes(repository, commit)
        )
        stage.publish(history, batching=True)
        kafka.roll()
        kafka.clean()
    found: dict[str, object] = {}
    seen, twice, tombstones = set[str](), list[str](), 0
    for message in stage.read(compacted=False):
        path = message.partition_key()
        twice += [f"{path} is there twice"] if path in seen else []
        seen.add(path)
        if message.is_tombstone():
            tombstones += 1
        else:
            document = json.loads(message.data())
            found[path] = (document["mode"], document["blob"])
    print(f"stays       {counted(tombstones, 'tombstone')}, for delete.retention.ms")
    tree: dict[str, object] = dict(git_history.tree(repository, commit))
    wrong = twice + differences(found, tree)
    of = f"git ls-tree -r {commit[:12]}, {counted(len(found), 'path')}"
    return verdict(wrong, f"the cleaned log equals {of}")


def _print(left: list[tuple[int, str, str]]) -> None:
    rows = [{"offset": offset, "key": key, "value": value} for offset, key, value in left]
    print(f"\n{aligned(rows) if rows else '(nothing is left)'}\n")


def _unlike(what: str, found: object, expected: object) -> list[str]:
    return [] if found == expected else [f"{what}: {found} instead of {expected}"]
