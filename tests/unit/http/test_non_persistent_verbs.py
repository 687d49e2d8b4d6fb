"""The admin REST API of non-persistent topics, with the statuses of Pulsar 4.0.7."""

from __future__ import annotations

import pytest

from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic
from tests.support.http_lab import HttpLab

ALL = "/non-persistent/public/default"
NAME, T = "non-persistent://public/default/t", f"{ALL}/t"


def subscribe(lab: HttpLab, name: str = "s") -> None:
    async def attach() -> None:
        topic = await lab.broker.pulsar_topic(NAME)
        assert isinstance(topic, NonPersistentTopic)
        topic.attach(name, ConsumerOptions(SubscriptionType.SHARED, name="c"))

    lab.run(attach())


def test_lists_contain_the_topics_in_use(lab: HttpLab) -> None:
    assert lab.get(ALL) == lab.get(f"{ALL}/partitioned") == []
    lab.done("PUT", T)
    again = lab.ask("PUT", T)
    assert (again.status, again.reason) == (409, "This topic already exists")
    lab.done("PUT", f"{ALL}/parts/partitions", 2)
    assert lab.get(ALL) == [NAME]
    assert lab.get("/persistent/public/default") == []
    assert lab.get("/persistent/public/default/partitioned") == []
    assert lab.get(f"{ALL}/partitioned") == ["non-persistent://public/default/parts"]
    assert lab.get(f"{ALL}/parts/partitions")["partitions"] == 2
    assert lab.get(f"{ALL}/parts/partitioned-stats")["metadata"]["partitions"] == 2
    assert len(lab.get(ALL)) == 3
    lab.done("POST", f"{ALL}/parts/partitions", 3)
    assert lab.get(f"{T}/partitions")["partitions"] == 0
    names = "/namespaces/public/default/topics"
    assert lab.get(names) == lab.get(f"{names}?mode=PERSISTENT") == []
    for mode in ("NON_PERSISTENT", "ALL"):
        assert lab.get(f"{names}?mode={mode}") == lab.get(ALL)
    lab.done("DELETE", f"{ALL}/parts/partitions")
    assert lab.get(ALL) == [NAME]


def test_stats(lab: HttpLab) -> None:
    subscribe(lab)
    stats = lab.get(f"{T}/stats")
    assert stats["subscriptions"]["s"]["type"] == "Shared"
    assert [each["consumerName"] for each in stats["subscriptions"]["s"]["consumers"]] == ["c"]
    assert (stats["msgDropRate"], stats["storageSize"]) == (0.0, 0)
    internal = lab.get(f"{T}/internalStats")
    assert (internal["entriesAddedCounter"], list(internal["cursors"])) == (0, ["s"])
    assert lab.get(f"{T}/subscriptions") == ["s"]
    busy = lab.ask("DELETE", T)
    assert busy.status == 412
    assert lab.status("DELETE", f"{T}/subscription/nope") == 404
    lab.done("DELETE", f"{T}/subscription/s?force=true")
    lab.done("PUT", f"{T}/unload")
    assert lab.get(ALL) == []
    assert lab.status("GET", f"{T}/stats") == 404
    lab.done("PUT", T)
    lab.done("DELETE", T)
    # It may be gone: Pulsar, too, ends topics that nobody uses.
    lab.done("DELETE", T)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("PUT", "subscription/s", "latest", 400, "can only be done through client"),
        ("POST", "subscription/s/skip_all", None, 405, "only persistent topics"),
        ("POST", "subscription/s/resetcursor/1000", None, 405, "only persistent topics"),
        ("POST", "subscription/s/expireMessages/10", None, 405, "only persistent topics"),
        ("GET", "subscription/s/position/1", None, 405, "is non-persistent"),
        ("GET", "examinemessage", None, 405, "is non-persistent"),
        ("GET", "lastMessageId", None, 405, "is non-persistent"),
        ("GET", "messageid/1000", None, 405, "only persistent topics"),
        ("PUT", "compaction", None, 405, "only persistent topics"),
        ("GET", "compaction", None, 405, "only persistent topics"),
        ("POST", "trim", None, 405, "only persistent topics"),
        ("DELETE", "truncate", None, 412, "unsupport truncate"),
        ("POST", "terminate", None, 406, "Need to provide a persistent topic name"),
        ("POST", "retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5}, 405, "only"),
        ("GET", "partitioned-stats", None, 404, "not found"),
    ],
)
def test_requests_about_stored_messages_are_refused(
    lab: HttpLab, method: str, path: str, body: object, status: int, reason: str
) -> None:
    subscribe(lab)
    answer = lab.ask(method, f"{T}/{path}", body)
    assert answer.status == status, answer
    assert reason in answer.reason


def test_an_unload_of_the_namespace_ends_its_topics(lab: HttpLab) -> None:
    lab.done("PUT", T)
    lab.done("PUT", "/namespaces/public/default/unload")
    assert lab.get(ALL) == []
