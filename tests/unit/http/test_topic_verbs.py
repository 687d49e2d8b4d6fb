"""Topics and partitioned topics over HTTP, as Pulsar 4.0.7 answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from tests.model.broker_lab import TOPIC
from tests.model.log_model import Message
from tests.support.http_lab import HttpLab

ALL = "/persistent/public/default"
T = f"{ALL}/t"
P = f"{ALL}/p"
FULL = "persistent://public/default"
NO_PARENT = "Partitioned Topic Name should not contain '-partition-'"


def publish(lab: HttpLab, *keys: bytes) -> None:
    """One entry a key, to T."""
    lab.publish(*(([Message(key, b"1")], False) for key in keys))


@pytest.mark.parametrize("path", [ALL, "/namespaces/public/default/topics"])
def test_topics_are_listed_on_a_thread(lab: HttpLab, path: str) -> None:
    """No test had 100,000 topics, whose list delayed all clients."""
    lab.done("PUT", T)
    executor, listed = lab.broker.executor, lab.broker.names.listed
    with (
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(1, thread_name_prefix="lists") as threads,
    ):
        names = list[str]()
        patch.setattr(lab.broker, "executor", threads)

        def noted(namespace: str) -> list[str]:
            names.append(threading.current_thread().name)
            return listed(namespace)

        patch.setattr(lab.broker.names, "listed", noted)
        assert lab.get(path) == [TOPIC]
    assert names == ["lists_0"]
    assert lab.broker.executor is executor


def test_a_topic_is_made_listed_and_deleted(lab: HttpLab) -> None:
    assert lab.get(ALL) == []
    lab.done("PUT", T)
    assert lab.get(ALL) == [TOPIC]
    again = lab.ask("PUT", T)
    assert (again.status, again.reason) == (409, "This topic already exists")
    assert lab.get(f"{T}/partitions") == {"partitions": 0, "deleted": False}
    stats = lab.get(f"{T}/stats")
    assert (stats["msgInCounter"], stats["subscriptions"]) == (0, {})
    assert lab.get(f"{T}/internalStats")["state"] == "LedgerOpened"
    lab.done("DELETE", T)
    assert lab.get(ALL) == []
    missing = lab.ask("GET", f"{T}/stats")
    assert (missing.status, missing.reason) == (404, f"Topic {TOPIC} not found")


def test_a_connected_client_prevents_the_deletion(lab: HttpLab) -> None:
    lab.done("PUT", T)
    topic = lab.run(lab.broker.topic(TOPIC))
    producer = lab.run(topic.attach_producer("p"))
    assert lab.status("DELETE", T) == 412
    lab.done("DELETE", f"{T}?force=true")
    lab.on_loop(producer.detach)


@pytest.mark.parametrize("path", ["p-partition-0/stats", "p/partitioned-stats"])
def test_stats_without_clients(lab: HttpLab, path: str) -> None:
    lab.done("PUT", f"{P}/partitions", 1)
    lab.done("PUT", f"{P}-partition-0/subscription/s")
    topic = lab.run(lab.broker.topic(f"{FULL}/p-partition-0"))
    lab.run(topic.attach_producer("p"))
    options = ConsumerOptions(SubscriptionType.SHARED, name="c")
    lab.on_loop(lambda: topic.subscriptions["s"].attach(options))

    def clients(query: str) -> set[tuple[int, int]]:
        stats = lab.get(f"{ALL}/{path}?{query}")
        return {
            (len(each["publishers"]), len(each["subscriptions"]["s"]["consumers"]))
            for each in (stats, *stats.get("partitions", {}).values())
        }

    assert clients("") == {(1, 1)}
    assert clients("excludePublishers=true") == {(0, 1)}
    assert clients("excludePublishers=true&excludeConsumers=true") == {(0, 0)}


def test_partitions_are_made_grown_and_deleted(lab: HttpLab) -> None:
    lab.done("PUT", f"{P}/partitions", 2)
    lab.done("PUT", f"{ALL}/q/partitions", {"partitions": 1, "properties": {}})
    assert lab.get(f"{ALL}/partitioned") == [f"{FULL}/p", f"{FULL}/q"]
    assert lab.get(ALL)[:2] == [f"{FULL}/p-partition-0", f"{FULL}/p-partition-1"]
    assert lab.get(f"{P}/partitions")["partitions"] == 2
    lab.done("POST", f"{P}/partitions", 3)
    lab.done("POST", f"{P}/partitions", 3)
    assert lab.get(f"{P}/partitions")["partitions"] == 3
    stats = lab.get(f"{P}/partitioned-stats")
    assert (stats["metadata"]["partitions"], len(stats["partitions"])) == (3, 3)
    assert lab.get(f"{P}/partitioned-stats?perPartition=false")["partitions"] == {}
    internal = lab.get(f"{P}/partitioned-internalStats")
    assert internal["partitions"][f"{FULL}/p-partition-2"]["numberOfEntries"] == 0
    lab.done("PUT", f"{P}/unload")
    lab.done("DELETE", f"{P}/truncate")
    assert set(lab.ask("POST", f"{P}/terminate/partitions").body) == {"0", "1", "2"}
    lab.done("DELETE", f"{P}/partitions")
    assert lab.get(f"{ALL}/partitioned") == [f"{FULL}/q"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "/persistent/public/nope", None, 404, "Namespace does not exist"),
        ("PUT", "/persistent/public/nope/t", None, 404, "Namespace not found"),
        ("PUT", "/persistent/nope/nope/t", None, 404, "Namespace not found"),
        ("GET", "/persistent/public/nope/t/stats", None, 404, "Namespace not found"),
        ("PUT", "/persistent/pub%20lic/default/x", None, 412, "Namespace name is not valid"),
        ("PUT", f"{ALL}/x%2Fy", None, 412, "use topic, tenant/namespace/topic"),
        ("PUT", f"{ALL}/a-partition-3", None, 412, "a-partition-3"),
        ("PUT", f"{P}-partition-7", None, 412, "has only"),
        ("GET", f"{P}-partition-0/partitioned-stats", None, 412, NO_PARENT),
        ("POST", f"{P}-partition-0/partitions", 3, 412, NO_PARENT),
        ("DELETE", f"{P}-partition-0/partitions", None, 412, NO_PARENT),
        ("DELETE", f"{ALL}/a-partition-3/partitions", None, 412, NO_PARENT),
        ("GET", f"{ALL}/nope/partitions", None, 404, f"Topic {FULL}/nope not found"),
        ("GET", f"{ALL}/nope/internalStats", None, 404, f"Topic {FULL}/nope not found"),
        ("DELETE", f"{ALL}/nope", None, 404, f"Topic {FULL}/nope not found"),
        ("DELETE", f"{ALL}/nope/partitions", None, 404, f"Topic {FULL}/nope not found"),
        ("DELETE", P, None, 409, "is partitioned"),
        ("DELETE", f"{T}/partitions", None, 409, "is not partitioned"),
        ("PUT", f"{P}/partitions", 2, 409, "This topic already exists"),
        ("PUT", f"{T}/partitions", 2, 409, "This topic already exists"),
        ("PUT", P, None, 409, "This topic already exists"),
        ("PUT", f"{ALL}/x/partitions", 0, 406, "Number of partitions should be more than 0"),
        ("PUT", f"{ALL}/x/partitions", -1, 406, "Number of partitions should be more than 0"),
        ("PUT", f"{ALL}/x/partitions", 1001, 406, "less than or equal to 1000"),
        ("PUT", f"{ALL}/x/partitions", "many", 400, "must be a whole number"),
        ("PUT", f"{ALL}/x/partitions", None, 400, "must be a whole number"),
        ("PUT", f"{ALL}/x/partitions", True, 400, "must be a whole number"),
        ("PUT", f"{ALL}/x/partitions", "9" * 30, 400, "out of range"),
        ("POST", f"{P}/partitions", 1, 422, "cannot be reduced to 1"),
        ("POST", f"{ALL}/nope/partitions", 3, 409, "is not the partitioned topic."),
        ("GET", f"{T}/partitioned-stats", None, 404, f"Partitioned Topic {TOPIC} not found"),
        ("GET", f"{P}/stats", None, 404, "has 2 partitions"),
        ("PUT", f"{ALL}/nope/unload", None, 404, f"Topic {FULL}/nope not found"),
        ("POST", f"{P}/terminate", None, 405, "Only one partition can be terminated"),
        ("GET", f"{P}/messageid/0", None, 405, "A message belongs to one partition"),
        ("GET", f"{T}/messageid/x", None, 400, "must be a whole number"),
    ],
)
def test_refusals_equal_pulsars(
    lab: HttpLab, method: str, path: str, body: object, status: int, reason: str
) -> None:
    lab.done("PUT", T)
    lab.done("PUT", f"{P}/partitions", 2)
    answer = lab.ask(method, path, body)
    assert answer.status == status, answer
    assert reason in answer.reason


def test_a_topic_created_by_use_has_no_partitions(lab: HttpLab) -> None:
    path = f"{ALL}/new/partitions?checkAllowAutoCreation=true"
    assert lab.get(path) == {"partitions": 0, "deleted": False}
    assert lab.get(ALL) == []


def test_ids_of_messages(lab: HttpLab) -> None:
    lab.done("PUT", T)
    empty = lab.get(f"{T}/lastMessageId")
    assert (empty["entryId"], empty["partitionIndex"]) == (-1, -1)
    assert empty["ledgerId"] > 0
    publish(lab, b"a", b"b")
    last = lab.get(f"{T}/lastMessageId")
    assert (last["ledgerId"], last["entryId"], last["batchIndex"]) == (empty["ledgerId"], 1, -1)
    assert lab.get(f"{T}/messageid/0")["entryId"] == 0
    # The one that the next message will have.
    assert lab.get(f"{T}/messageid/99999999999999")["entryId"] == 2
    assert lab.status("GET", f"{ALL}/nope/lastMessageId") == 404


def test_the_last_id_of_an_empty_partition_names_the_partition(lab: HttpLab) -> None:
    """Only topics without partitions had been asked while they were empty."""
    lab.done("PUT", f"{T}/partitions", 2)
    assert lab.get(f"{T}-partition-1/lastMessageId")["partitionIndex"] == 1


def test_a_topic_is_trimmed_truncated_unloaded_and_terminated(lab: HttpLab) -> None:
    lab.done("PUT", T)
    publish(lab, b"a", b"b")
    lab.done("PUT", f"{T}/unload")
    lab.done("PUT", "/namespaces/public/default/unload")
    assert lab.ask("POST", f"{T}/trim").status == 200
    publish(lab, b"c")
    lab.done("DELETE", f"{T}/truncate")
    assert lab.get(f"{T}/internalStats")["numberOfEntries"] == 0
    first = lab.ask("POST", f"{T}/terminate")
    assert first.status == 200
    assert lab.ask("POST", f"{T}/terminate").body == first.body
    assert lab.get(f"{T}/internalStats")["state"] == "Terminated"


def test_a_compaction_is_triggered_and_its_status_returned(lab: HttpLab) -> None:
    lab.done("PUT", T)
    assert lab.get(f"{T}/compaction") == {"status": "NOT_RUN", "lastError": ""}
    publish(lab, b"a", b"b", b"a")
    lab.lab.compactor.may_go.clear()
    lab.done("PUT", f"{T}/compaction")
    assert lab.get(f"{T}/compaction")["status"] == "RUNNING"
    again = lab.ask("PUT", f"{T}/compaction")
    assert again.status == 409
    lab.on_loop(lab.lab.compactor.may_go.set)
    lab.wait_for_compaction(T)
    assert lab.get(f"{T}/compaction") == {"status": "SUCCESS", "lastError": ""}
    # Nothing new to compact is no error.
    lab.done("PUT", f"{T}/compaction")
    assert lab.get(f"{T}/stats")["compaction"]["lastCompactionRemovedEventCount"] == 1
    assert lab.get(f"{T}/internalStats")["compactedLedger"]["entries"] == 2


def test_a_failed_compaction_returns_the_reason(lab: HttpLab) -> None:
    lab.done("PUT", T)
    publish(lab, b"a")
    lab.lab.compactor.failure = RuntimeError("no luck")
    lab.done("PUT", f"{T}/compaction")
    lab.wait_for_compaction(T)
    status = lab.get(f"{T}/compaction")
    assert status["status"] == "ERROR"
    assert "no luck" in status["lastError"]


def test_a_compaction_of_all_partitions(lab: HttpLab) -> None:
    lab.done("PUT", f"{P}/partitions", 2)
    lab.done("PUT", f"{P}/compaction")
    assert lab.status("PUT", f"{ALL}/nope/compaction") == 404
    assert lab.status("GET", f"{ALL}/nope/compaction") == 404


def test_the_metrics_are_served(lab: HttpLab) -> None:
    lab.done("PUT", T)
    publish(lab, b"a")
    answer = lab.ask("GET", "/metrics/")
    sample = b'pulsar_in_messages_total{cluster="standalone",namespace="public/default",topic="'
    assert sample + TOPIC.encode() + b'"} 1\n' in answer.body
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("name", ["01", "-1", "%2B1"])
def test_numbers_of_partitions_are_reserved(lab: HttpLab, name: str) -> None:
    """As in Pulsar 4.0.7, also those that no partition has, until the topic is partitioned.

    No test had such a number.
    """
    at = f"/persistent/public/default/x-partition-{name}"
    assert lab.status("PUT", at) == 412
    assert lab.status("PUT", at.replace("persistent", "non-persistent", 1)) == 412
    assert "x is not partitioned" in str(lab.ask("PUT", at).reason)
    lab.done("PUT", "/persistent/public/default/x/partitions", 2)
    lab.done("PUT", at)


@pytest.mark.parametrize("number", ["2", "2147483648", "99999999999"])
def test_no_partition_can_be_created_beyond_the_last(lab: HttpLab, number: str) -> None:
    """Also with a number of more than 31 bits, which no test had beside a partitioned topic."""
    at = f"/persistent/public/default/x-partition-{number}"
    assert lab.status("PUT", at) == 412
    lab.done("PUT", "/persistent/public/default/x/partitions", 2)
    assert "only 2 partitions" in str(lab.ask("PUT", at).reason)
    assert lab.status("PUT", at) == 412


@pytest.mark.parametrize("name", ["a", "", "a-partition-01"])
def test_other_texts_may_follow_the_suffix(lab: HttpLab, name: str) -> None:
    lab.done("PUT", f"/persistent/public/default/x-partition-{name}")
