"""Strategies on the command line: the options, and the verbs against a real broker."""

from __future__ import annotations

import argparse
import json

import pytest

from ledgerfold.broker.cli.main import make_parser
from ledgerfold.broker.cli.topics.serve_options import strategy_of
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.unit.cli.conftest import Ledgerfold


def serve(*arguments: str) -> argparse.Namespace:
    return make_parser().parse_args(["serve", "--data", "d", *arguments])


def test_the_strategy_of_the_broker() -> None:
    """It is given by Ledgerfold's name or by Pulsar's; by default there is none."""
    assert strategy_of(serve()) is None
    event_time = CompactionStrategy(name="event-time")
    assert strategy_of(serve("--compactor-type", "EVENT_TIME")) == event_time
    factory = "org.apache.pulsar.compaction.EventTimeCompactionServiceFactory"
    assert strategy_of(serve("--compaction-strategy", factory)) == event_time
    given = serve("--compaction-strategy", "keep-n", "--strategy-set", "n=2")
    assert strategy_of(given) == CompactionStrategy(name="keep-n", settings={"n": "2"})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--strategy-set", "n=2"], "Settings require"),
        (["--compaction-strategy", "keep-n"], "needs the setting 'n'"),
        (["--compaction-strategy", "keep-n", "--strategy-set", "n"], "FIELD=VALUE"),
        (
            ["--compaction-strategy", "keep-n", "--strategy-set", "n=1", "--strategy-set", "n=2"],
            "given twice",
        ),
    ],
)
def test_settings_that_the_broker_rejects(arguments: list[str], why: str) -> None:
    """The error has the strategy's text, before anything is opened."""
    with pytest.raises(InvalidRequest, match=why):
        strategy_of(serve(*arguments))


@pytest.mark.process
@pytest.mark.parametrize("of", ["topics", "topicPolicies", "namespaces"])
def test_a_topics_strategy_is_set_and_removed(cli: Ledgerfold, topic: str, of: str) -> None:
    """Topics inherit a namespace's strategy."""
    name = "public/strategies" if of == "namespaces" else topic
    inside = f"public/strategies/{topic}" if of == "namespaces" else topic
    assert cli("topics", "create", inside).code == 0
    get = (of, "get-compaction-strategy", name)
    assert cli(*get).out == "null\n"
    assert json.loads(cli(*get, "--applied").out) == {"name": "publishing-order", "settings": {}}
    ran = cli(of, "set-compaction-strategy", name, "keep-n", "--set", "n=3")
    assert ran == (0, "", "")
    assert json.loads(cli(*get).out) == {"name": "keep-n", "settings": {"n": "3"}}
    applied = cli("topics", "get-compaction-strategy", inside, "-ap")
    assert json.loads(applied.out)["settings"] == {"n": "3"}
    assert cli(of, "set-compaction-strategy", name, "EVENT_TIME").code == 0
    assert json.loads(cli(*get).out) == {"name": "event-time", "settings": {}}
    stats = json.loads(cli("topics", "stats", inside).out)
    assert stats["compaction"]["strategy"] == {"name": "event-time", "settings": {}}
    status = cli("topics", "compaction-status", inside).out
    assert status.splitlines()[1] == "The next run's strategy is event-time."
    assert cli(of, "remove-compaction-strategy", name).code == 0
    assert cli(*get).out == "null\n"


@pytest.mark.process
def test_a_partitioned_topics_strategy_applies_to_its_partitions(
    cli: Ledgerfold, topic: str
) -> None:
    """A single partition cannot have another one."""
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2").code == 0
    assert cli("topics", "set-compaction-strategy", topic, "newest").code == 0
    partition = f"{topic}-partition-1"
    stats = json.loads(cli("topics", "stats", partition).out)
    assert stats["compaction"]["strategy"]["name"] == "newest"
    assert cli("topics", "set-compaction-strategy", partition, "newest").code == 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["keep-n"], "needs the setting 'n'"),
        (["keep-n", "--set", "n=-1"], "an integer of at least 1"),
        (["keep-n", "--set", f"n={10**18}"], "at most 18 digits"),
        (["header-version", "--set", "property="], "is empty"),
        (["no name"], "is not a strategy"),
        (["newest", "--set", "x=1"], "it has none"),
    ],
)
def test_invalid_settings_are_rejected(
    cli: Ledgerfold, topic: str, arguments: list[str], why: str
) -> None:
    """The catalogue says why, with 2; nothing is set."""
    assert cli("topics", "create", topic).code == 0
    ran = cli("topics", "set-compaction-strategy", topic, *arguments)
    assert ran.code == 2
    assert why in ran.err
    assert cli("topics", "get-compaction-strategy", topic).out == "null\n"
