"""Messages in and out, topics and policies: the verbs against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import Ran
from tests.unit.cli.conftest import Ledgerfold


def values(ran: Ran) -> list[str | None]:
    assert ran.code == 0, ran.err
    return [row["value"] for row in ran.rows]


# produce


def test_messages_from_the_command_line(cli: Ledgerfold, topic: str) -> None:
    """Each -m is one, unchanged; -s separates several; -n repeats all."""
    ran = cli("produce", topic, "-k", "k", "-m", "a,b", "-m", "c")
    assert ran == (0, "", f"2 messages published to {topic}\n")
    assert cli("produce", topic, "-m", "d;e", "-s", ";", "-n", "2").code == 0
    found = cli("read", topic, "--until-end")
    assert values(found) == ["a,b", "c", "d", "e", "d", "e"]
    assert [row["key"] for row in found.rows] == ["k", "k", None, None, None, None]


def test_files_properties_and_times(cli: Ledgerfold, topic: str, tmp_path: Path) -> None:
    """A file is one message, with any content."""
    path = tmp_path / "value"
    path.write_bytes(b"\xff\n\x00")
    ran = cli("produce", topic, "-f", str(path), "-p", "a=1,b=x=y", "-p", "c=", "--event-time", "5")
    assert ran.code == 0
    (row,) = cli("read", topic, "--until-end").rows
    assert (row["value"], row["encoding"]) == ("/woA", "base64")
    assert row["properties"] == {"a": "1", "b": "x=y", "c": ""}
    assert row["event_time"] == 5


def test_lines_of_standard_input(cli: Ledgerfold, topic: str) -> None:
    """A message each, without its line break; the key before a delimiter if one is named."""
    assert cli("produce", topic, "-k", "k", stdin=b"a\r\n\nb").code == 0
    assert cli("produce", topic, "-K", "::", "-Z", stdin=b"x::1\ny::2::3\nz::\n").code == 0
    found = cli("read", topic, "--until-end")
    assert [(row["key"], row["value"]) for row in found.rows] == [
        ("k", "a"),
        ("k", ""),
        ("k", "b"),
        ("x", "1"),
        ("y", "2::3"),
        ("z", None),
    ]


def test_bytes_that_are_not_text(cli: Ledgerfold, topic: str) -> None:
    """Keys and values of standard input are stored unchanged."""
    assert cli("produce", topic, "-K", ":", stdin=b"\xff:\xfe\n").code == 0
    (row,) = cli("read", topic, "--until-end").rows
    assert (row["key"], row["key_encoding"]) == ("/w==", "base64")
    assert (row["value"], row["encoding"]) == ("/g==", "base64")


def test_an_id_with_a_partition_on_a_topic_without(cli: Ledgerfold, topic: str) -> None:
    assert cli("produce", topic, "-m", "x").code == 0
    ran = cli("read", topic, "-m", "1:0:0", "--until-end")
    assert ran.code == 3
    assert "is not partitioned: its message ids have no partition." in ran.err


def test_compacted_messages_are_read_by_one_client(cli: Ledgerfold, topic: str) -> None:
    ran = cli("consume", topic, "-s", "s", "-t", "Shared", "--read-compacted")
    assert ran.code == 1
    assert "--read-compacted works with --type Exclusive" in ran.err
    assert cli("consume", topic, "-s", "").code == 2


def test_a_line_without_the_delimiter(cli: Ledgerfold, topic: str) -> None:
    """Named by its number; those before it are stored."""
    ran = cli("produce", topic, "-K", ":", stdin=b"a:1\nb\nc:3\n")
    assert ran.code == 2
    assert "Line 2 has no ':': b (1 line before it published)." in ran.err
    assert values(cli("read", topic, "--until-end")) == ["1"]


@pytest.mark.parametrize("compression", ["zstd", "LZ4", "zlib", "snappy"])
def test_messages_are_published_as_one_batch(cli: Ledgerfold, topic: str, compression: str) -> None:
    """All messages are in one entry, from any source."""
    ran = cli("produce", topic, "--batch", "--compression", compression, "-v", stdin=b"x\n" * 3000)
    ids = ran.out.splitlines()
    assert ids == [f"{ids[0].rsplit(':', 1)[0]}:{index}" for index in range(3000)]
    assert values(cli("read", topic, "--until-end")) == ["x"] * 3000


def test_printed_ids_are_start_positions(cli: Ledgerfold, topic: str) -> None:
    """By produce, by read, and as the last one."""
    ids = cli("produce", topic, "-v", "--batch", stdin=b"a\nb\nc\n").out.splitlines()
    assert [row["id"] for row in cli("read", topic, "--until-end").rows] == ids
    assert values(cli("read", topic, "--from", ids[0], "--until-end")) == ["b", "c"]
    assert values(cli("read", topic, "--from", ids[1], "-i", "-n", "1")) == ["b"]
    assert cli("topics", "last-message-id", topic).out.splitlines() == ids[-1:]


def test_the_first_message_since_a_time(cli: Ledgerfold, topic: str) -> None:
    """The id of its entry, however the time is written."""
    first, *_ = cli("produce", topic, "-v", "-m", "x").out.splitlines()
    for time in ("0", "2024-01-31T12:00:00+00:00"):
        assert cli("topics", "get-message-id", topic, "-d", time).out == f"{first}\n"
    assert "not a time" in cli("topics", "get-message-id", topic, "-d", "soon").err


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--tombstone"], "needs a key"),
        (["--tombstone", "-k", "k", "-m", "x"], "has no value"),
        (["-K", ":", "-k", "k"], "-K reads keys"),
        (["-K", ":", "-m", "x"], "-K reads keys"),
        (["-K", ""], "at least one character"),
        (["-p", "novalue", "-m", "x"], "NAME=VALUE"),
        (["-n", "2"], "read once"),
        (["-n", "0", "-m", "x"], "must be 1 or more"),
        (["--event-time", "-1", "-m", "x"], "not an integer"),
        (["--compression", "brotli", "-m", "x"], "invalid choice"),
    ],
)
def test_invalid_input(cli: Ledgerfold, topic: str, arguments: list[str], wrong: str) -> None:
    """Fails with 2 before anything is sent."""
    ran = cli("produce", topic, *arguments)
    assert ran.code == 2
    assert wrong in ran.err
    assert cli("topics", "stats", topic).code == 3


# read and consume


def test_reading_by_time(cli: Ledgerfold, topic: str) -> None:
    """Starts from a publish time; a future time has no messages."""
    cli("produce", topic, "-m", "a")
    (row,) = cli("read", topic, "--until-end").rows
    assert values(cli("read", topic, "--from", str(row["publish_time"]), "--until-end")) == ["a"]
    later = str(row["publish_time"] + 3_600_000)
    assert values(cli("read", topic, "--from", later, "--until-end")) == []


def test_latest_is_after_the_last_message(cli: Ledgerfold, topic: str) -> None:
    """If the start is inclusive, it is the last message."""
    cli("produce", topic, "-m", "a", "-m", "b")
    assert values(cli("read", topic, "--from", "latest", "--until-end")) == []
    assert values(cli("read", topic, "--from", "latest", "-i", "--until-end")) == ["b"]


@pytest.mark.parametrize("type_", ["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_consuming_until_the_end(cli: Ledgerfold, topic: str, type_: str) -> None:
    """Everything once; then nothing, also though the topic is not empty."""
    cli("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(2500)))
    consume = ("consume", topic, "-s", "s", "-t", type_, "-p", "Earliest", "--until-end")
    assert values(cli(*consume, "-n", "2")) == ["0", "1"]
    assert values(cli(*consume, "-n", "0"))[-1] == "2499"
    assert values(cli(*consume, "-n", "0")) == []
    cli("produce", topic, "-m", "new")
    assert values(cli(*consume, "-n", "0")) == ["new"]


def test_consuming_without_acknowledging(cli: Ledgerfold, topic: str) -> None:
    """The message is redelivered."""
    cli("produce", topic, "-m", "a", "-m", "b")
    consume = ("consume", topic, "-s", "s", "-p", "Earliest", "-n", "0", "--until-end")
    assert values(cli(*consume, "--no-ack")) == ["a", "b"]
    assert values(cli(*consume)) == ["a", "b"]
    assert values(cli(*consume)) == []


def test_consume_reports_that_it_created_a_topic(cli: Ledgerfold) -> None:
    """Pulsar's command creates one silently; the name may be mistyped. Once: then it is there."""
    consume = ("consume", "mistyped", "-s", "s", "--until-end")
    name = "persistent://public/default/mistyped"
    assert cli(*consume).err == f"Topic {name} did not exist and was created.\n"
    assert cli(*consume).err == ""
    assert cli("topics", "create-partitioned-topic", "parted", "-p", "2").code == 0
    assert cli("consume", "parted", "-s", "s", "--until-end").err == ""


def test_a_new_subscription_begins_at_the_end(cli: Ledgerfold, topic: str) -> None:
    """This is Pulsar's default."""
    cli("produce", topic, "-m", "a")
    assert values(cli("consume", topic, "-s", "s", "--until-end")) == []


def test_a_shared_subscription_has_no_compacted_view(cli: Ledgerfold, topic: str) -> None:
    """Refused with 1 and the reason."""
    ran = cli("consume", topic, "-s", "s", "-t", "Shared", "--read-compacted")
    assert ran.code == 1
    assert "Exclusive and Failover" in ran.err


# topics, subscriptions, policies


def test_topics_are_created_inspected_and_deleted(cli: Ledgerfold, topic: str) -> None:
    """A topic is created, listed, inspected, unloaded, trimmed and deleted; each command has its
    exit code."""
    full = f"persistent://public/default/{topic}"
    assert cli("topics", "create", topic).code == 0
    assert cli("topics", "create", full).code == 5
    assert full in cli("topics", "list").out.splitlines()
    assert full in cli("topics", "list", "public/default").out.splitlines()
    assert cli("topics", "list", "public/other") == (0, "", "")
    assert json.loads(cli("topics", "stats", topic).out)["msgInCounter"] == 0
    assert json.loads(cli("topics", "stats-internal", topic).out)["numberOfEntries"] == 0
    assert cli("topics", "unload", topic).code == 0
    assert cli("topics", "trim", topic).code == 0
    assert cli("topics", "compaction-status", topic).out.startswith("Compaction has not been run")
    assert cli("topics", "cancel-compaction", topic).out == "No compaction is running.\n"
    assert cli("runs", topic) == (0, "", "")
    assert cli("topics", "delete", topic).code == 0
    ran = cli("topics", "stats", topic)
    assert ran.code == 3
    assert full in ran.err


def test_subscriptions(cli: Ledgerfold, topic: str) -> None:
    """Created at a given position, listed, deleted."""
    first, _ = cli("produce", topic, "-v", "-m", "a", "-m", "b").out.splitlines()
    create = ("topics", "create-subscription", topic, "-s", "s")
    assert cli(*create, "-m", "2024-01-01").code == 2
    assert cli(*create, "-m", first).code == 0
    assert cli(*create).code == 5
    assert cli("topics", "subscriptions", topic).out == "s\n"
    assert values(cli("consume", topic, "-s", "s", "-n", "0", "--until-end")) == ["b"]
    assert cli("topics", "unsubscribe", topic, "-s", "s").code == 0
    assert cli("topics", "unsubscribe", topic, "-s", "s").code == 3


@pytest.mark.parametrize("scope", ["topics", "topicPolicies", "namespaces"])
def test_policies_are_set_and_removed(cli: Ledgerfold, topic: str, scope: str) -> None:
    """Set, got, removed; nothing set is null."""
    name = f"public/{topic}" if scope == "namespaces" else topic
    assert cli("namespaces" if scope == "namespaces" else "topics", "create", name).code == 0
    assert cli(scope, "get-compaction-threshold", name).out == "null\n"
    assert cli(scope, "set-compaction-threshold", name, "-t", "100M").code == 0
    assert cli(scope, "get-compaction-threshold", name).out == "104857600\n"
    assert cli(scope, "remove-compaction-threshold", name).code == 0
    assert cli(scope, "get-compaction-threshold", name).out == "null\n"
    assert cli(scope, "get-compaction-threshold", name, "-ap").out == "0\n"
    assert cli(scope, "set-retention", name, "-t", "3d", "-s", "-1").code == 0
    retention = {"time_ms": 259_200_000, "size_bytes": -1}
    assert json.loads(cli(scope, "get-retention", name).out) == retention
    assert cli(scope, "remove-retention", name).code == 0
    assert cli(scope, "get-retention", name).out == "null\n"
    assert cli(scope, "set-emulation", name, "--profile", "pulsar-4").code == 0
    assert json.loads(cli(scope, "get-emulation", name).out)
    assert cli(scope, "remove-emulation", name).code == 0
    assert json.loads(cli(scope, "get-emulation", name).out) == {}


def test_reading_a_missing_topic_fails(cli: Ledgerfold, topic: str) -> None:
    """Fails with 3 and creates nothing; after --create it can be read."""
    for name in (topic, f"{topic}-partition-0"):
        ran = cli("read", name, "--until-end")
        assert ran.code == 3
        assert f"{name} does not exist. --create creates it." in ran.err
    assert topic not in cli("topics", "list").out
    assert cli("read", topic, "--until-end", "--create") == (0, "", "")
    assert cli("read", topic, "--until-end", "-o", "json") == (0, "[]\n", "")
    cli("topics", "create-partitioned-topic", f"{topic}-p", "-p", "2")
    assert cli("read", f"{topic}-p", "--until-end") == (0, "", "")


@pytest.mark.parametrize("name", ["a/b/c/d", "persistent://a/b/c/d", "a/b/c/"])
def test_invalid_topic_names(cli: Ledgerfold, name: str) -> None:
    """Each command refuses them, and lists the valid forms."""
    for arguments in (("topics", "create"), ("read",), ("produce",), ("topics", "stats")):
        ran = cli(*arguments, name)
        assert ran.code == 2
        assert "tenant/namespace/topic" in ran.err


def test_topic_policies_and_policies_verbs_agree(cli: Ledgerfold, topic: str) -> None:
    """Two ways to one setting, as in pulsar-admin."""
    cli("topics", "create", topic)
    cli("topicPolicies", "set-compaction-threshold", topic, "-t", "1K")
    assert cli("topics", "get-compaction-threshold", topic).out == "1024\n"


def test_compacting_without_a_compactor(cli: Ledgerfold, topic: str) -> None:
    """Refused, with the reason."""
    cli("produce", topic, "-k", "k", "-m", "a")
    ran = cli("topics", "compact", topic)
    assert ran.code == 1
    assert ran.err.startswith("ledgerfold: ")


def test_the_description_of_the_broker(cli: Ledgerfold, data_dir: Path) -> None:
    """Shows the broker's description."""
    info = json.loads(cli("info").out)
    assert info["data_dir"] == str(data_dir)
    assert info["compactor"] == "disabled"


def test_a_data_directory_in_use(cli: Ledgerfold, data_dir: Path) -> None:
    """A second broker on it: The exit code is 5; the error names the owner."""
    ran = cli("serve", "--data", str(data_dir), "--listen", "127.0.0.1:0", "--compactor", "off")
    assert ran.code == 5
    assert str(data_dir) in ran.err


def test_a_port_in_use(cli: Ledgerfold, url: str, tmp_path: Path) -> None:
    """The exit code is 5; the error names the port."""
    ran = cli("serve", "--data", str(tmp_path), "--listen", url, "--compactor", "off")
    assert ran.code == 5
    assert f"Another process listens on {url}." in ran.err


@pytest.mark.parametrize("scope", ["topics", "namespaces"])
def test_both_policy_verbs_set_quotas_and_delays(cli: Ledgerfold, topic: str, scope: str) -> None:
    assert cli("topics", "create", topic).code == 0
    name = topic if scope == "topics" else "public/quotas"
    if scope == "namespaces":
        refused = cli(scope, "set-deduplication", name, "--disable")
        assert (refused.code, "'public/quotas' does not exist" in refused.err) == (3, True)
        assert cli(scope, "create", name).code == 0
    quota = ("-l", "10M", "-p", "producer_exception")
    assert cli(scope, "set-backlog-quota", name, *quota).code == 0
    age = ("-t", "message_age", "-lt", "1h", "-p", "consumer_backlog_eviction")
    assert cli(scope, "set-backlog-quota", name, *age).code == 0
    shown = json.loads(cli(scope, "get-backlog-quotas", name, "-o", "json").out)
    assert shown == {
        "destination_storage": {
            "limit_bytes": 10 * 1024 * 1024,
            "limit_ms": -1,
            "policy": "producer_exception",
        },
        "message_age": {
            "limit_bytes": -1,
            "limit_ms": 3_600_000,
            "policy": "consumer_backlog_eviction",
        },
    }
    assert cli(scope, "remove-backlog-quota", name).code == 0
    assert cli(scope, "remove-backlog-quota", name, "-t", "message_age").code == 0
    assert json.loads(cli(scope, "get-backlog-quotas", name, "-o", "json").out) == {}
    missing = cli(scope, "set-backlog-quota", name, "-p", "producer_exception")
    assert (missing.code, "Give --limit." in missing.err) == (2, True)
    assert cli(scope, "set-deduplication", name, "--disable").code == 0
    assert cli(scope, "get-deduplication", name).out.strip() == "false"
    assert cli(scope, "remove-deduplication", name).code == 0
    assert cli(scope, "get-deduplication", name).out.strip() == "null"
    assert cli(scope, "get-delayed-delivery", name).out.strip() == "null"
    assert cli(scope, "set-delayed-delivery", name, "false").code == 0
    assert cli(scope, "get-delayed-delivery", name).out.strip() == "false"
    assert cli(scope, "remove-delayed-delivery", name).code == 0
    assert cli(scope, "get-delayed-delivery", name).out.strip() == "null"
    for of in ("consumer", "subscription"):
        limit = f"max-unacked-messages-per-{of}"
        assert cli(scope, f"set-{limit}", name, "-c", "7").code == 0
        assert cli(scope, f"get-{limit}", name).out.strip() == "7"
        assert cli(scope, f"remove-{limit}", name).code == 0
        assert cli(scope, f"get-{limit}", name).out.strip() == "null"


def test_tenants_and_namespaces(cli: Ledgerfold) -> None:
    assert cli("namespaces", "create", "acme/shop").code == 3
    assert cli("tenants", "create", "acme", "-r", "me").code == 0
    again = cli("tenants", "create", "acme")
    assert (again.code, again.err) == (5, "ledgerfold: Tenant 'acme' already exists.\n")
    assert cli("namespaces", "create", "acme/shop").code == 0
    assert cli("namespaces", "create", "acme/shop").code == 5
    assert cli("namespaces", "list", "acme").out == "acme/shop\n"
    assert "acme\n" in cli("tenants", "list").out
    assert "public/default\n" in cli("namespaces", "list").out
    assert "delete them first" in cli("tenants", "delete", "acme").err
    cli("topics", "create", "acme/shop/t")
    assert "delete them first" in cli("namespaces", "delete", "acme/shop").err
    cli("topics", "delete", "acme/shop/t")
    assert cli("namespaces", "delete", "acme/shop").code == 0
    assert cli("namespaces", "delete", "acme/shop").code == 3
    assert cli("tenants", "delete", "acme").code == 0
    assert cli("tenants", "delete", "acme").code == 3
    assert cli("namespaces", "list", "acme").code == 3
    for name in ("acme", "a/b/c", "a/b!"):
        assert cli("namespaces", "create", name).code == 2
