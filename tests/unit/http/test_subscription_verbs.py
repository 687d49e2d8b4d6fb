"""Subscriptions over HTTP, as Pulsar 4.0.7 answers."""

from __future__ import annotations

import pytest

from ledgerfold.storage.errors import DiskFailure
from tests.model.broker_lab import TOPIC
from tests.model.log_model import Message
from tests.support.http_lab import HttpLab
from tests.support.subscription_lab import SHARED

ALL = "/persistent/public/default"
N = "/namespaces/public/default"
T, P = f"{ALL}/t", f"{ALL}/p"
S = f"{T}/subscription/s"
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}


def publish(lab: HttpLab, count: int) -> list[dict[str, int]]:
    """One entry a message; their ids."""
    positions = lab.publish(*(([Message(b"k", b"1")], False) for _ in range(count)))
    return [{"ledgerId": each[0], "entryId": each[1], "partitionIndex": -1} for each in positions]


def backlog(lab: HttpLab, name: str = "s") -> int:
    return int(lab.get(f"{T}/stats")["subscriptions"][name]["msgBacklog"])


def test_subscriptions_are_made_listed_and_deleted(lab: HttpLab) -> None:
    """A topic that does not exist is created, as in Pulsar."""
    lab.done("PUT", S)
    publish(lab, 3)
    lab.done("PUT", f"{T}/subscription/a%20%2F%C3%BC", EARLIEST)
    assert lab.get(f"{T}/subscriptions") == ["a /ü", "s"]
    assert backlog(lab, "a /ü") == 3
    again = lab.ask("PUT", S)
    assert (again.status, again.reason) == (409, "Subscription already exists for topic")
    lab.done("DELETE", f"{T}/subscription/a%20%2F%C3%BC")
    assert lab.get(f"{T}/subscriptions") == ["s"]
    lab.done("PUT", f"{T}/compaction")
    lab.wait_for_compaction(T)
    assert lab.get(f"{T}/subscriptions") == ["s", "__compaction"]


def test_the_start_position_of_a_subscription(lab: HttpLab) -> None:
    ids = publish(lab, 4)
    starts = {"none": None, "latest": LATEST, "word": "earliest", "two": ids[2]}
    for name, start in starts.items():
        lab.done("PUT", f"{T}/subscription/{name}", start)
    lab.done("PUT", f"{T}/subscription/nested", {"messageId": EARLIEST, "properties": {}})
    found = {name: backlog(lab, name) for name in (*starts, "nested")}
    assert found == {"none": 0, "latest": 0, "word": 4, "two": 2, "nested": 4}


def test_messages_are_skipped(lab: HttpLab) -> None:
    lab.done("PUT", S)
    publish(lab, 5)
    lab.done("POST", f"{S}/skip/2")
    assert backlog(lab) == 3
    lab.done("POST", f"{S}/skip_all")
    assert backlog(lab) == 0


def test_a_cursor_is_reset_by_time_and_by_id(lab: HttpLab) -> None:
    lab.done("PUT", S)
    ids = publish(lab, 5)
    lab.done("POST", f"{S}/resetcursor/99999999999999")
    assert backlog(lab) == 0
    lab.done("POST", f"{S}/resetcursor/0")
    assert backlog(lab) == 5
    lab.done("POST", f"{S}/resetcursor", ids[3])
    assert backlog(lab) == 2
    lab.done("POST", f"{S}/resetcursor", ids[3] | {"isExcluded": True})
    assert backlog(lab) == 1
    lab.done("POST", f"{S}/resetcursor", EARLIEST)
    assert backlog(lab) == 5


def test_messages_expire(lab: HttpLab) -> None:
    lab.done("PUT", S)
    publish(lab, 2)
    lab.run(lab.lab.clock.move_to(lab.lab.clock.now_ms() + 60_000))
    publish(lab, 1)
    lab.done("POST", f"{S}/expireMessages/30")
    assert backlog(lab) == 1
    lab.done("POST", f"{T}/all_subscription/expireMessages/30")
    lab.done("POST", f"{S}/skip_all")
    assert lab.status("POST", f"{S}/expireMessages/30") == 409
    # As in Pulsar, a subscription without a backlog is an error, after the others are done.
    publish(lab, 1)
    lab.done("POST", f"{S}/skip_all")
    lab.done("PUT", f"{T}/subscription/behind", EARLIEST)
    lab.run(lab.lab.clock.move_to(lab.lab.clock.now_ms() + 60_000))
    expire_all = f"{T}/all_subscription/expireMessages/30"
    assert lab.status("POST", expire_all) == 409
    assert backlog(lab, "behind") == 0
    assert lab.status("POST", expire_all) == 409


def test_backlogs_and_subscriptions_of_a_namespace(lab: HttpLab) -> None:
    """Topics without the subscription are passed over; a consumer protects only its own."""
    other, log = f"{ALL}/other", "persistent://public/default/log"
    lab.run(lab.broker.create_topic(log, {"cleanup.policy": "compact"}))
    lab.done("PUT", f"{P}/partitions", 2)
    for topic in (T, P):
        lab.done("PUT", f"{topic}/subscription/s", EARLIEST)
    for topic in (T, other):
        lab.done("PUT", f"{topic}/subscription/o", EARLIEST)
    publish(lab, 3)
    lab.done("POST", f"{N}/clearBacklog/s")
    assert (backlog(lab), backlog(lab, "o")) == (0, 3)
    assert lab.status("POST", f"{N}/clearBacklog/none") == 404
    lab.done("POST", f"{N}/clearBacklog")
    assert backlog(lab, "o") == 0
    held = lab.run(lab.broker.topic(TOPIC))
    lab.on_loop(lambda: held.subscriptions["o"].attach(SHARED))
    assert lab.status("POST", f"{N}/unsubscribe/o") == 412
    assert [lab.get(f"{each}/subscriptions") for each in (T, other)] == [["o", "s"], []]
    lab.done("POST", f"{N}/unsubscribe/s")
    lab.done("POST", f"{N}/unsubscribe/s")
    assert [lab.get(f"{each}/subscriptions") for each in (T, P)] == [["o"], []]
    assert lab.status("POST", f"{N}/unsubscribe/__compaction") == 405
    for verb in ("clearBacklog", "unsubscribe/s"):
        assert lab.status("POST", f"/namespaces/public/nope/{verb}") == 404


def test_a_topic_that_cannot_be_loaded_does_not_protect_the_others(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Pulsar, they are done, and then the request fails."""
    bad, load = f"{ALL}/a-bad-one", lab.broker.any_topic
    for topic in (bad, T):
        lab.done("PUT", f"{topic}/subscription/s", EARLIEST)
    publish(lab, 3)

    async def loaded(name: str, *arguments: bool, **options: bool) -> object:
        if name.endswith("/a-bad-one"):
            raise DiskFailure("1.log", "read", OSError("no disk"))
        return await load(name, *arguments, **options)

    monkeypatch.setattr(lab.broker, "any_topic", loaded)
    for verb in ("clearBacklog", "unsubscribe/s"):
        answer = lab.ask("POST", f"{N}/{verb}")
        assert (answer.status, "no disk" in answer.reason) == (500, True)
        assert verb != "clearBacklog" or backlog(lab) == 0
    assert lab.get(f"{T}/subscriptions") == []


def test_messages_expire_up_to_one(lab: HttpLab) -> None:
    """The whole entry, as in Pulsar: neither `isExcluded` nor a batch index has an effect."""
    lab.done("PUT", S, EARLIEST)
    ids = publish(lab, 5)
    expire = f"{S}/expireMessages"
    lab.done("POST", expire, EARLIEST)
    assert backlog(lab) == 5
    lab.done("POST", expire, ids[0] | {"batchIndex": 0})
    assert backlog(lab) == 4
    lab.done("POST", expire, ids[2] | {"isExcluded": True})
    lab.done("POST", expire, ids[1])
    assert backlog(lab) == 2
    assert lab.get(f"{T}/stats")["subscriptions"]["s"]["totalMsgExpired"] == 3
    beyond = ids[4] | {"entryId": ids[4]["entryId"] + 1}
    assert lab.status("POST", expire, beyond) == 409
    lab.done("POST", expire, ids[4])
    assert backlog(lab) == 0


def test_messages_of_a_partition_expire_up_to_one(lab: HttpLab) -> None:
    lab.done("PUT", f"{P}/partitions", 2)
    lab.done("PUT", f"{P}/subscription/s", EARLIEST)
    expire = f"{P}-partition-1/subscription/s/expireMessages"
    lab.done("POST", expire, EARLIEST | {"partitionIndex": 1})
    assert lab.status("POST", expire, EARLIEST) == 412


def test_a_connected_consumer_prevents_the_deletion(lab: HttpLab) -> None:
    lab.done("PUT", S)
    topic = lab.run(lab.broker.topic(TOPIC))
    lab.on_loop(lambda: topic.subscriptions["s"].attach(SHARED))
    assert lab.status("DELETE", S) == 412
    lab.done("DELETE", f"{S}?force=true")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", f"{ALL}/nope/subscriptions", None, 404, "nope not found"),
        ("PUT", "/persistent/public/nope/t/subscription/s", None, 404, "Namespace not found"),
        ("PUT", f"{T}/subscription/x", {"ledgerId": 1}, 400, "Name a message id"),
        ("PUT", f"{T}/subscription/x", {"ledgerId": "a", "entryId": 1}, 400, "ledgerId"),
        (
            *("PUT", f"{T}/subscription/x"),
            {"ledgerId": 1, "entryId": 1, "batchIndex": 2**40},
            *(400, "batchIndex"),
        ),
        ("PUT", f"{T}/subscription/__compaction", None, 405, "reserved for compaction"),
        ("PUT", f"{T}/subscription/a%0Ab", None, 412, "control characters"),
        (
            *("DELETE", f"{T}/subscription/nope", None, 404),
            f"Subscription nope not found for topic {TOPIC}",
        ),
        ("POST", f"{T}/subscription/nope/skip_all", None, 404, "Subscription nope not found"),
        ("POST", f"{S}/skip/x", None, 400, "count must be a whole number"),
        ("POST", f"{S}/resetcursor", None, 400, "Name a message id"),
        ("POST", f"{S}/resetcursor/x", None, 400, "timestamp must be a whole number"),
        ("POST", f"{S}/expireMessages/0", None, 400, "1 second or more"),
        ("POST", f"{S}/expireMessages", None, 400, "Name a message id"),
        ("POST", f"{S}/expireMessages", {"ledgerId": 2**40, "entryId": 0}, 409, "after the last"),
        ("POST", f"{S}/expireMessages", EARLIEST | {"partitionIndex": 3}, 412, "names partition 3"),
        ("POST", f"{P}/subscription/s/expireMessages", EARLIEST, 405, "for partitioned-topic"),
        ("POST", f"{P}/subscription/s/skip/1", None, 405, "no order across partitions"),
        ("POST", f"{P}/subscription/s/resetcursor", EARLIEST, 405, "not allowed for partitioned"),
        ("POST", f"{P}/subscription/s/resetcursor/0", None, 204, ""),
    ],
)
def test_invalid_requests_are_refused(
    lab: HttpLab, method: str, path: str, body: object, status: int, reason: str
) -> None:
    lab.done("PUT", S)
    lab.done("PUT", f"{P}/partitions", 2)
    lab.done("PUT", f"{P}/subscription/s")
    answer = lab.ask(method, path, body)
    assert answer.status == status, answer
    if reason:
        assert reason in answer.reason
