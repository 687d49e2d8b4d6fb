"""Properties of topics and subscriptions: gRPC's calls, the command line, and restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import InvalidRequest, NotAllowed, TopicNotFound
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold

OFF = ("--compactor", "off")


def test_properties_survive_restarts_and_archives(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", arguments=OFF) as broker:
        with Admin(broker.url) as admin:
            admin.create_topic("t", properties={"owner": "sales", "level": "1"})
            admin.update_topic_properties("t", {"level": "2"}, remove=["owner"])
            admin.create_partitioned_topic("p", 2, properties={"x": "1"})
            admin.create_topic("log", kafka={"cleanup.policy": "compact"}, properties={"k": "1"})
            admin.update_topic_properties("log", {"more": "2"})
            admin.create_subscription("t", "s", properties={"team": "risk"})
            admin.update_subscription_properties("t", "s", {"team": "audit"})
        broker.kill()
        broker.restart()
        with Admin(broker.url) as admin:
            assert admin.topic_properties("t") == {"level": "2"}
            assert admin.topic_properties("p") == {"x": "1"}
            assert admin.topic_properties("log") == {"k": "1", "more": "2"}
            assert admin.partitioned_topic_metadata("p")["properties"] == {"x": "1"}
            assert admin.subscription_properties("t", "s") == {"team": "audit"}
        broker.stop()
    file, other = str(tmp_path / "t.topic"), tmp_path / "other"
    assert ledgerfold("topics", "export", "t", file, "--data", str(tmp_path / "data")).code == 0
    assert ledgerfold("topics", "import", file, "--data", str(other)).code == 0
    with BrokerProcess(other, arguments=OFF) as broker, Admin(broker.url) as admin:
        assert admin.topic_properties("t") == {"level": "2"}
        assert admin.subscription_properties("t", "s") == {"team": "audit"}


def test_the_command_line_has_pulsar_admins_verbs(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", arguments=OFF) as broker:

        def run(*arguments: str) -> str:
            ran = ledgerfold("--url", broker.url, "topics", *arguments)
            assert ran.code == 0, ran.err
            return ran.out

        run("create", "t", "-m", "owner=sales", "-m", "level=1")
        run("update-properties", "t", "-p", "level=2")
        run("remove-properties", "t", "-k", "owner")
        assert json.loads(run("get-properties", "t", "-o", "json")) == {"level": "2"}
        run("create-partitioned-topic", "p", "-p", "2", "-m", "x=1")
        shown = json.loads(run("get-partitioned-topic-metadata", "p", "-o", "json"))
        assert shown["properties"] == {"x": "1"}
        run("create-subscription", "t", "-s", "s", "-p", "team=risk")
        of_subscription = ("get-subscription-properties", "t", "-s", "s", "-o", "json")
        assert json.loads(run(*of_subscription)) == {"team": "risk"}
        run("update-subscription-properties", "t", "-s", "s", "-p", "a=b=c")
        assert json.loads(run(*of_subscription)) == {"a": "b=c"}
        run("update-subscription-properties", "t", "-s", "s", "-c")
        assert json.loads(run(*of_subscription)) == {}


def test_a_consumer_names_the_properties_of_a_new_subscription(tmp_path: Path) -> None:
    """Each partition gets them. An existing subscription keeps its own."""
    with BrokerProcess(tmp_path / "data", arguments=OFF) as broker:
        with Admin(broker.url) as admin, Client(broker.url) as client:
            admin.create_partitioned_topic("p", 2)
            for topic in ("t", "p"):
                for value in ("risk", "audit"):
                    named = {"team": value}
                    client.subscribe(topic, "s", subscription_properties=named).close()
                assert admin.subscription_properties(topic, "s") == {"team": "risk"}
            other, wrong = "non-persistent://public/default/n", {"team": 1}
            client.subscribe(other, "s", subscription_properties=named)
            with pytest.raises(InvalidRequest, match="string"):
                client.subscribe("t", "u", subscription_properties=cast(Any, wrong))
        broker.kill()
        broker.restart()
        with Admin(broker.url) as admin:
            assert admin.subscription_properties("p", "s") == {"team": "risk"}


def test_calls_are_refused_with_a_reason(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", arguments=OFF) as broker, Admin(broker.url) as admin:
        admin.create_topic("t")
        with pytest.raises(TopicNotFound):
            admin.topic_properties("none")
        with pytest.raises(TopicNotFound):
            admin.update_topic_properties("none", {"a": "1"})
        with pytest.raises(NotAllowed, match="persistent"):
            admin.topic_properties("non-persistent://public/default/t")
        with pytest.raises(InvalidRequest, match="100 properties"):
            admin.update_topic_properties("t", {f"k{at}": "" for at in range(101)})
