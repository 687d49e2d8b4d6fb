"""Kafka topics on the command line with a real compactor: passes, plans, demonstrations."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.client import Client, MessageId
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Cli, checked, ledgerfold
from tests.support.git_repository import Repository
from tests.support.waiting import WAIT_MS

CALM = ("--cleanup-policy", "compact", "--config", "min.cleanable.dirty.ratio=1")

pytestmark = pytest.mark.spark


def test_the_demonstration_of_addresses(cli: Cli, topic: str) -> None:
    """The plan's tail, head and map; offsets count from 1 in the demonstration, otherwise
    from 0.
    """
    ran = cli("demo", "addresses", "--topic", topic, "--cleanup-policy", "compact")
    assert checked(ran) == "offsets 3, 4 and 6 are left, each key once"
    assert "map         1002 -> 4, 1001 -> 6\n" in ran.out
    rows = cli("read", topic, "--until-end").rows
    assert [(row["offset"], row["key"]) for row in rows] == [(2, "1003"), (3, "1002"), (5, "1001")]


def test_the_demonstration_of_prices(broker_process: MakeBroker) -> None:
    """The last one stays in the active segment; the checkpoint file has one entry."""
    broker = broker_process(compactor="inline")
    cli = ("--url", broker.url)
    ran = ledgerfold(*cli, "demo", "prices", "--topic", "prices", "--cleanup-policy", "compact")
    assert checked(ran) == "p3:11 p6:12 p5:14 are left, p5:17 stays in the active segment"
    rows = ledgerfold(*cli, "read", "prices", "--until-end").rows
    assert [f"{row['key']}:{row['value']}" for row in rows] == ["p3:11", "p6:12", "p5:14", "p5:17"]
    assert ledgerfold(*cli, "cleaner", "checkpoint").out == "0\n1\nprices 0 6\n"


def test_a_git_repository_leaves_the_tree_of_its_last_commit(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    """A cleaning retains the tree of the last commit; deletions stay for a while."""
    repository = Repository(tmp_path / "repository")
    for name in ('quo"ted', "line\nbreak", "folder/é", b"latin-\xe9", "goes"):
        repository.write(name)
    repository.commit()
    repository.remove("goes")
    repository.write("comes")
    repository.commit()
    policy = ("--cleanup-policy", "compact,delete")
    ran = cli("demo", "git", str(repository.path), "--topic", topic, *policy)
    assert checked(ran).startswith("the cleaned log equals git ls-tree -r")
    assert checked(ran).endswith(", 5 paths")
    assert "1 tombstone, for delete.retention.ms" in ran.out


def test_a_demonstration_fails_on_an_existing_topic(cli: Cli, topic: str) -> None:
    """A canary: an existing topic is not used."""
    assert cli("topics", "create", topic, *CALM).code == 0
    ran = cli("demo", "addresses", "--topic", topic, "--cleanup-policy", "compact")
    assert ran.code == 5


def test_a_pass_reports_the_chosen_log_and_the_reason(cli: Cli, topic: str) -> None:
    """Figures of the plan before, statistics of the cleaning, and the start of the next one."""
    assert cli("topics", "create", topic, *CALM).code == 0
    assert cli("produce", topic, "-K", ":", stdin=b"a:1\nb:1\na:2\n").code == 0
    assert cli("topics", "roll", topic).code == 0
    (plan,) = cli("cleaner", "plan", topic, "--map").rows
    assert plan["map"] == [{"key": "b", "offset": 1}, {"key": "a", "offset": 2}]
    (turn,) = cli("cleaner", "run", "--topic", topic).rows
    assert turn["cleaned"] == f"persistent://public/default/{topic}"
    assert turn["why"] == "requested; however clean"
    assert (turn["ratio"], turn["checkpoint"], turn["map_keys"]) == (1.0, 3, 2)
    assert (turn["messages_read"], turn["messages_written"]) == (3, 2)
    assert turn["bytes_written"] < turn["bytes_read"] == turn["cleanable_bytes"]
    assert [row["offset"] for row in cli("read", topic, "--until-end").rows] == [1, 2]
    (again,) = cli("cleaner", "run", "--topic", topic, "-o", "jsonl").rows
    assert again["cleaned"] is None
    assert again["logs"][0]["why_not"].startswith("nothing to clean below offset 3")
    assert f"{topic} 0 3\n" in cli("cleaner", "checkpoint").out
    assert f"{topic}; 3 -> 2 messages" in cli("cleaner", "status", "-o", "table").out


def test_partitions_are_cleaned_separately(
    cli: Cli, shared_broker: BrokerProcess, topic: str
) -> None:
    """A key that is in two partitions stays twice; one that the client routes stays once."""
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2", *CALM).code == 0
    names = [f"{topic}-partition-{at}" for at in range(2)]
    routed = [f"k{number}" for number in range(6)]
    with Client(shared_broker.url) as client:
        with client.create_producer(topic) as producer:
            for value in (b"old", b"new"):
                for key in routed:
                    producer.send(value, partition_key=key)
        for name in names:
            with client.create_producer(name) as producer:
                for value in (b"old", b"new"):
                    producer.send(value, partition_key="in both")
        assert cli("topics", "roll", topic).code == 0
        turns = cli("cleaner", "run", "--topic", topic).rows
        assert [each["cleaned"].rpartition("/")[2] for each in turns] == names
        left = []
        for name in names:
            with client.create_reader(name, MessageId.earliest) as reader:
                while reader.has_message_available():
                    message = reader.read_next(timeout_millis=WAIT_MS)
                    left.append((message.partition_key(), message.data()))
    assert sorted(left) == sorted((key, b"new") for key in [*routed, "in both", "in both"])
    rows = cli("read", topic, "--until-end").rows
    assert sorted(row["key"] for row in rows) == sorted(key for key, _ in left)
