"""Pulsar's own pulsar-admin, unchanged, administers a broker.

Its commands are run by pulsar-shell, which needs one JVM for all of them. LEDGERFOLD_PULSAR_TOOLS
names the folder with the jars of both (org.apache.pulsar:pulsar-client-tools and its dependencies);
without it, or without Java, this is skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from ledgerfold.broker.client import Client
from tests.conftest import MakeBroker, has_java

JARS = "LEDGERFOLD_PULSAR_TOOLS"
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(JARS not in os.environ, reason=f"{JARS} names no folder of jars"),
    pytest.mark.skipif(not has_java(), reason="Java is not installed"),
]
T, P = "persistent://public/default/orders", "persistent://acme/ns/parts"
SCHEMA = '{"type": "record", "name": "Price", "fields": []}'
# A command, and its output or error.
COMMANDS = (
    ("tenants create acme", ""),
    ("tenants list", "acme"),
    ("namespaces create acme/ns", ""),
    ("namespaces create acme/ns2 -b 4 --clusters standalone", ""),
    ("namespaces list acme", "acme/ns2"),
    ("namespaces set-clusters acme/ns -c standalone", ""),
    ("namespaces clear-backlog acme/ns --force", ""),
    ("namespaces unsubscribe acme/ns -s none", ""),
    ("namespaces set-compaction-threshold acme/ns --threshold 10M", ""),
    ("namespaces get-compaction-threshold acme/ns", "10485760"),
    ("namespaces remove-compaction-threshold acme/ns", ""),
    ("namespaces set-retention acme/ns -s 10M -t 10m", ""),
    ("namespaces get-retention acme/ns", '"retentionTimeInMinutes" : 10'),
    ("namespaces set-message-ttl acme/ns -ttl 6000", ""),
    ("namespaces get-message-ttl acme/ns", "6000"),
    ("namespaces set-deduplication acme/ns -e", ""),
    ("namespaces policies acme/ns", '"message_ttl_in_seconds" : 6000'),
    ("namespaces bundles acme/ns", "numBundles"),
    ("namespaces unload acme/ns", ""),
    ("namespaces set-backlog-quota acme/ns -l 5M -p producer_exception", ""),
    ("namespaces get-backlog-quotas acme/ns", "producer_exception"),
    ("namespaces remove-backlog-quota acme/ns", ""),
    ("namespaces set-delayed-delivery acme/ns --disable", ""),
    ("namespaces get-delayed-delivery acme/ns", '"active" : false'),
    ("namespaces set-max-unacked-messages-per-consumer acme/ns -c 7", ""),
    ("namespaces get-max-unacked-messages-per-consumer acme/ns", "7"),
    ("tenants get acme", "allowedClusters"),
    ("tenants update acme -r me -c standalone", ""),
    ("namespaces set-persistence acme/ns -a 1 -e 1 -w 1 -r 0", "is not emulated"),
    ("topics list public/default", T),
    (f"topics create {T}", "This topic already exists"),
    (f"topics create-partitioned-topic {P} -p 2", ""),
    (f"topics update-partitioned-topic {P} -p 3", ""),
    (f"topics get-partitioned-topic-metadata {P}", '"partitions" : 3'),
    ("topics list-partitioned-topics acme/ns", P),
    (f"topics partitioned-stats {P} --per-partition", f"{P}-partition-2"),
    (f"topics partitioned-stats-internal {P}", f"{P}-partition-2"),
    ("namespaces topics acme/ns", f"{P}-partition-0"),
    (f"topics bundle-range {T}", "0x00000000_0xffffffff"),
    (f"topics lookup {T}", "does not serve Pulsar's binary protocol"),
    (f"topics create-subscription {T} -s sub -m earliest", ""),
    (f"topics subscriptions {T}", "sub"),
    (f"topics stats {T}", '"msgInCounter" : 5'),
    (f"topics stats-internal {T}", '"entriesAddedCounter" : 3'),
    (f"topics peek-messages {T} -s sub -n 4", "four"),
    (f"topics examine-messages {T} -i earliest -m 1", "one"),
    (f"topics last-message-id {T}", '"entryId" : 2'),
    (f"topics get-message-id {T} -d 2026-01-01T00:00:00Z", '"entryId" : 0'),
    (f"topics skip {T} -s sub -n 1", ""),
    (f"topics expire-messages {T} -s sub -t 6000", ""),
    (f"topics expire-messages {T} -s sub -p 0:0", ""),
    (f"topics expire-messages-all-subscriptions {T} -t 6000", ""),
    (f"topics reset-cursor {T} -s sub -t 1h", ""),
    (f"topics reset-cursor {T} -s sub -m latest", ""),
    (f"topics clear-backlog {T} -s sub", ""),
    (f"topics unsubscribe {T} -s sub", ""),
    (f"topicPolicies set-compaction-threshold {T} -t 1M", ""),
    (f"topicPolicies get-compaction-threshold {T}", "1048576"),
    (f"topicPolicies set-retention {T} -s 1M -t 1m", ""),
    (f"topicPolicies get-retention {T} -ap", '"retentionSizeInMB" : 1'),
    (f"topicPolicies set-message-ttl {T} -t 6000", ""),
    (f"topicPolicies get-message-ttl {T}", "6000"),
    (f"topicPolicies remove-message-ttl {T}", ""),
    (f"topicPolicies set-backlog-quota {T} -l 500K -p consumer_backlog_eviction", ""),
    (f"topicPolicies get-backlog-quota {T}", "consumer_backlog_eviction"),
    (f"topicPolicies remove-backlog-quota {T}", ""),
    (f"topicPolicies set-deduplication {T} --disable", ""),
    (f"topicPolicies get-deduplication {T}", "false"),
    (f"topicPolicies remove-deduplication {T}", ""),
    (f"topicPolicies set-delayed-delivery {T} --disable", ""),
    (f"topicPolicies get-delayed-delivery {T}", '"active" : false'),
    (f"topicPolicies remove-delayed-delivery {T}", ""),
    (f"topicPolicies set-max-unacked-messages-per-subscription {T} -m 7", ""),
    (f"topicPolicies get-max-unacked-messages-per-subscription {T}", "7"),
    (f"topicPolicies remove-max-unacked-messages-per-subscription {T}", ""),
    (f"schemas get {T}", "Schema not found"),
    (f"schemas upload {T} -f schema.json", ""),
    (f"schemas get {T}", '"type": "AVRO"'),
    (f"schemas get {T} --version 0", '"name": "Price"'),
    (f"schemas compatibility {T} -f schema.json", ""),
    (f"schemas delete {T}", ""),
    (f"topicPolicies set-schema-compatibility-strategy {T} FULL", ""),
    ("namespaces set-schema-compatibility-strategy -c FORWARD acme/ns", ""),
    ("namespaces get-schema-compatibility-strategy acme/ns", "FORWARD"),
    ("namespaces set-schema-validation-enforce -e acme/ns", ""),
    ("namespaces get-schema-validation-enforce acme/ns", "true"),
    ("namespaces set-is-allow-auto-update-schema --disable acme/ns", ""),
    ("namespaces get-is-allow-auto-update-schema acme/ns", "false"),
    (f"topics compaction-status {T}", "Compaction has not been run"),
    (f"topics compact {T}", "Topic compaction requested"),
    (f"topics compaction-status {T} -w", "Compaction was a success"),
    (f"topics unload {T}", ""),
    (f"topics trim-topic {T}", ""),
    (f"topics truncate {T}", ""),
    (f"topics terminate {T}", "Topic successfully terminated"),
    (f"topics delete {T}", ""),
    (f"topics delete {T}", f"Topic {T} not found"),
    (f"topics delete-partitioned-topic {P}", ""),
    ("namespaces delete acme/ns", ""),
    ("namespaces delete acme/ns2", ""),
    ("tenants delete acme", ""),
    ("brokers healthcheck", "ok"),
    ("brokers version", "ledgerfold"),
    ("brokers list standalone", "127.0.0.1"),
    ("brokers leader-broker", "serviceUrl"),
    ("brokers get-runtime-config", "maxMessageSize"),
    ("clusters list", "standalone"),
    ("clusters get standalone", "serviceUrl"),
)


def test_every_command_of_pulsar_admin_works(broker_process: MakeBroker, tmp_path: Path) -> None:
    service = "tests.support.memory_service:Copying"
    broker = broker_process(
        *("--admin-listen", "127.0.0.1:0", "--compaction-service", service),
        *("--retention-time", "-1", "--retention-size", "-1"),
        compactor="local",
    )
    publish(broker.url)
    printed = run(tmp_path, broker.ready["admin"])
    wrong = [
        f"{command}: {text.strip()}"
        for (command, expected), text in zip(COMMANDS, printed, strict=True)
        if (expected not in text if expected else "Reason:" in text or "Exception" in text)
    ]
    assert not wrong, "\n".join(wrong)


def publish(url: str) -> None:
    """Publishes two single messages, and three in a batch."""
    with Client(url) as client:
        with client.create_producer(T) as producer:
            producer.send(b"one", partition_key="a", properties={"p": "q"})
            producer.send(b"two", partition_key="b")
        with client.create_producer(T, batching_enabled=True) as producer:
            for key, value in (("a", b"three"), ("b", b"four"), ("c", b"five")):
                producer.send_async(value, None, partition_key=key)
            producer.flush()


def run(folder: Path, address: str) -> list[str]:
    """Returns the output of each command."""
    url = f"http://{address}"
    (folder / "client.conf").write_text(f"webServiceUrl={url}\nbrokerServiceUrl=pulsar://none:1\n")
    (folder / "schema.json").write_text(json.dumps({"type": "AVRO", "schema": SCHEMA}))
    lines = (f"admin {command}\n" for command, _ in COMMANDS)
    (folder / "commands").write_text("".join(lines))
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    ran = subprocess.run(
        [
            *(str(java), "--add-opens", "java.base/sun.net=ALL-UNNAMED"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", f"-Duser.home={folder}"),
            *("-cp", f"{os.environ[JARS]}/*", "org.apache.pulsar.shell.PulsarShell"),
            *("--config", "client.conf", "-f", "commands", "-np"),
        ],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    parts = re.split(r"^\[\d+/\d+\] Executing .*$", ran.stdout, flags=re.MULTILINE)
    assert len(parts) == len(COMMANDS) + 1, ran.stdout[-4000:]
    return parts[1:]
