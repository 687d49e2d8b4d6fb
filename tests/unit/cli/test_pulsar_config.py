"""`serve --pulsar-config`: settings that take effect, refused ones, and ignored ones that it
names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ledgerfold.broker.cli.pulsar_config import configured, with_pulsar_config, without_effect
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.policies.effective import broker_policies
from ledgerfold.storage.errors import InvalidRequest, TopicNotFound
from ledgerfold.v1.records_pb2 import BACKLOG_POLICY_PRODUCER_EXCEPTION
from tests.model.broker_lab import TOPIC, BrokerLab

SETTINGS = BrokerSettings(Path("data"))
CONF = """
activeConsumerFailoverDelayTimeMillis=300
maxUnackedMessagesPerConsumer=8
maxUnackedMessagesPerSubscription=0
### of a Pulsar broker
zookeeperServers=
maxMessageSize=1048576
defaultRetentionTimeInMinutes=10
defaultRetentionSizeInMB=-1
ttlDurationDefaultInSeconds=60
brokerServiceCompactionThresholdInBytes=100
backlogQuotaDefaultLimitGB=2
backlogQuotaDefaultLimitSecond=5
backlogQuotaDefaultRetentionPolicy=producer_exception
managedLedgerMaxEntriesPerLedger=7
allowAutoTopicCreation=false
delayedDeliveryEnabled=false
"""


def given(*texts: str) -> argparse.Namespace:
    return argparse.Namespace(pulsar_config=list(texts))


def test_settings_of_broker_conf_take_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(CONF)
    settings = with_pulsar_config(SETTINGS, given(str(path), "ttlDurationDefaultInSeconds=61"))
    assert settings.message_bytes_max == 1024 * 1024
    assert (settings.retention_ms, settings.retention_bytes) == (600_000, -1)
    assert (settings.message_ttl_ms, settings.compaction_threshold_bytes) == (61_000, 100)
    assert settings.store.ledger_entries_max == 7
    assert not settings.creates_topics
    assert settings.failover_delay_ms == 300
    assert (settings.unacked_per_consumer_max, settings.unacked_per_subscription_max) == (8, 0)
    policies = broker_policies(settings)
    assert policies.backlog_size_quota.limit_bytes == 2 * 1024**3
    assert policies.backlog_age_quota.limit_ms == 5_000
    assert policies.backlog_age_quota.policy == BACKLOG_POLICY_PRODUCER_EXCEPTION
    assert policies.HasField("delayed_delivery")
    assert not policies.delayed_delivery
    assert capsys.readouterr().err == (
        "--pulsar-config: These settings are unknown, or have no effect here: zookeeperServers.\n"
    )


def test_options_override_the_file() -> None:
    settings = configured(BrokerSettings(Path("data"), message_ttl_ms=5), {"maxMessageSize": "9"})
    assert (settings.message_ttl_ms, settings.message_bytes_max) == (5, 9)
    assert configured(settings, {"ttlDurationDefaultInSeconds": "1"}).message_ttl_ms == 5
    assert with_pulsar_config(settings, given()) is settings


@pytest.mark.parametrize(
    "pair",
    [
        "maxMessageSize=much",
        "maxMessageSize=1_000",
        "maxMessageSize=0",
        "maxMessageSize=999999999",
        "ttlDurationDefaultInSeconds=-1",
        "defaultRetentionTimeInMinutes=-2",
        "ttlDurationDefaultInSeconds=9223372036854775807",
        "allowAutoTopicCreation=yes",
        "backlogQuotaDefaultRetentionPolicy=drop",
        "brokerDeduplicationEnabled=1",
        "advertisedListeners=b.org:6650",
        "advertisedListeners=a:pulsar://b:1,a:pulsar://c:1",
        "internalListenerName=inside",
    ],
)
def test_invalid_values_are_refused(pair: str) -> None:
    with pytest.raises(InvalidRequest, match=pair.partition("=")[0]):
        with_pulsar_config(SETTINGS, given(pair))


@pytest.mark.parametrize("is_on", [None, False, True])
def test_deduplication_of_all_topics(is_on: bool | None) -> None:
    pairs = {} if is_on is None else {"brokerDeduplicationEnabled": str(is_on).lower()}
    policies = broker_policies(configured(SETTINGS, pairs))
    assert policies.HasField("deduplication") == (is_on is not None)
    assert policies.deduplication == bool(is_on)


def test_listeners_with_names() -> None:
    text = "in:pulsar://10.0.0.1:6650, out:pulsar://b.org:6651, out:pulsar+ssl://b.org:6652"
    settings = configured(SETTINGS, {"advertisedListeners": text})
    assert list(settings.pulsar_listeners.items()) == [
        ("in", "10.0.0.1:6650"),
        ("out", "b.org:6651"),
    ]
    settings = configured(SETTINGS, {"advertisedListeners": text, "internalListenerName": "out"})
    assert next(iter(settings.pulsar_listeners)) == "out"
    many = ",".join(f"l{number}:pulsar://b:1" for number in range(101))
    with pytest.raises(InvalidRequest, match="the maximum is 100"):
        configured(SETTINGS, {"advertisedListeners": many})


def test_settings_without_effect_are_reported() -> None:
    assert without_effect({"allowAutoTopicCreationType": "partitioned"}) == [
        "allowAutoTopicCreationType=partitioned has no effect: partitioned topics are created "
        "explicitly."
    ]
    assert without_effect({"subscriptionKeySharedUseConsistentHashing": "true"}) == []
    (sentence,) = without_effect(dict.fromkeys([f"name{n}" for n in range(25)], ""))
    assert sentence.endswith("name19 and 5 more.")


def test_automatic_topic_creation_can_be_switched_off() -> None:
    lab = BrokerLab()
    lab.broker.settings = configured(lab.broker.settings, {"allowAutoTopicCreation": "false"})
    with pytest.raises(TopicNotFound, match="`ledgerfold topics create "):
        lab.run(lab.broker.topic(TOPIC))
    lab.run(lab.broker.create_topic(TOPIC))
    assert lab.topic.name == TOPIC
    lab.stop()
    lab.loop.close()
