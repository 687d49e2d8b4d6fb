"""Properties of topics and subscriptions over HTTP, as Pulsar 4.0.7 answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_lab import HttpLab

ALL = "/persistent/public/default"
T, P = f"{ALL}/t", f"{ALL}/p"
S = f"{T}/subscription/s"
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


def properties(lab: HttpLab, path: str) -> Any:
    return lab.get(f"{path}/properties")


def test_an_update_of_a_topics_properties_is_merged_into_them(lab: HttpLab) -> None:
    lab.done("PUT", T, {"a": "1", "b": "2"})
    lab.done("PUT", f"{T}/properties", {"b": "3", "number": 5, "flag": True})
    assert properties(lab, T) == {"a": "1", "b": "3", "number": "5", "flag": "true"}
    lab.done("DELETE", f"{T}/properties?key=b")
    lab.done("DELETE", f"{T}/properties?key=unknown")
    lab.done("DELETE", f"{T}/properties")
    lab.done("PUT", f"{T}/properties")
    assert properties(lab, T) == {"a": "1", "number": "5", "flag": "true"}


def test_numbers_stay_as_they_are_written(lab: HttpLab) -> None:
    lab.done("PUT", T)
    lab.done("PUT", S, EARLIEST)
    numbers = "1E2", "100.0", "1e999", "1.2345678901234567890", "12345678901234567890"
    written = dict(zip("abcde", numbers, strict=True))
    body = ", ".join(f'"{name}": {number}' for name, number in written.items())
    for of in (T, S):
        assert lab.ask("PUT", f"{of}/properties", raw=b"{%b}" % body.encode()).status == 204
        assert properties(lab, of) == written
        for constant in (b"NaN", b"Infinity", b"-Infinity"):
            refused = lab.ask("PUT", f"{of}/properties", raw=b'{"a": %b}' % constant)
            assert refused.status == 400
            assert "is not a number of JSON" in refused.reason
        assert properties(lab, of) == written


def test_the_first_parameter_of_a_name_counts(lab: HttpLab) -> None:
    lab.done("PUT", T, {"a": "1", "b": "2"})
    lab.done("DELETE", f"{T}/properties?key=a&key=b")
    assert properties(lab, T) == {"b": "2"}


def test_a_topic_without_properties_has_an_empty_object(lab: HttpLab) -> None:
    lab.done("PUT", T)
    assert properties(lab, T) == {}
    lab.done("PUT", f"{P}/partitions", 2)
    # As in Pulsar, a partitioned topic has none at all.
    assert properties(lab, P) is None
    assert lab.get(f"{P}/partitions") == {"partitions": 2, "deleted": False}


def test_properties_end_with_their_topic(lab: HttpLab) -> None:
    lab.done("PUT", T, {"a": "1"})
    lab.done("PUT", S, EARLIEST | {"properties": {"a": "1"}})
    lab.done("DELETE", f"{T}?force=true")
    lab.done("PUT", T)
    lab.done("PUT", S, EARLIEST)
    assert (properties(lab, T), properties(lab, S)) == ({}, {})


def test_a_partitioned_topic_and_its_partitions_have_their_own(lab: HttpLab) -> None:
    lab.done("PUT", f"{P}/partitions", {"partitions": 2, "properties": {"x": "1"}})
    lab.done("PUT", f"{P}/properties", {"y": "2"})
    lab.done("PUT", f"{P}-partition-0/properties", {"own": "3"})
    shown = {"partitions": 2, "deleted": False, "properties": {"x": "1", "y": "2"}}
    assert lab.get(f"{P}/partitions") == shown
    assert lab.get(f"{P}/partitioned-stats")["metadata"] == shown
    assert properties(lab, P) == {"x": "1", "y": "2"}
    assert properties(lab, f"{P}-partition-0") == {"own": "3"}
    assert properties(lab, f"{P}-partition-1") == {}
    lab.done("POST", f"{P}/partitions", 3)
    assert properties(lab, P) == {"x": "1", "y": "2"}


def test_an_update_of_a_subscriptions_properties_replaces_them(lab: HttpLab) -> None:
    lab.done("PUT", S, EARLIEST | {"properties": {"a": "1"}})
    assert properties(lab, S) == {"a": "1"}
    lab.done("PUT", f"{S}/properties", {"b": 2})
    assert properties(lab, S) == {"b": "2"}
    assert lab.get(f"{T}/stats")["subscriptions"]["s"]["subscriptionProperties"] == {"b": "2"}
    lab.done("PUT", f"{T}/unload")
    assert properties(lab, S) == {"b": "2"}
    lab.done("PUT", f"{S}/properties")
    assert properties(lab, S) == {}


def test_a_subscription_of_a_partitioned_topic_shows_those_of_all_partitions(lab: HttpLab) -> None:
    lab.done("PUT", f"{P}/partitions", 2)
    subscription, one = f"{P}/subscription/s", f"{P}-partition-1/subscription/s"
    lab.done("PUT", subscription, EARLIEST | {"properties": {"a": "1"}})
    lab.done("PUT", f"{one}/properties", {"c": "2"})
    assert properties(lab, subscription) == {"a": "1", "c": "2"}
    stats = lab.get(f"{P}/partitioned-stats")["subscriptions"]["s"]
    assert stats["subscriptionProperties"] == {"a": "1", "c": "2"}
    lab.done("POST", f"{P}/partitions", 3)
    assert properties(lab, f"{P}-partition-2/subscription/s") == {"a": "1"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"{ALL}/none/properties", None, 404),
        ("GET", "/persistent/public/none/t/properties", None, 404),
        ("GET", f"{P}-partition-9/properties", None, 404),
        ("GET", f"{T}/subscription/none/properties", None, 404),
        ("PUT", f"{T}/subscription/none/properties", {"a": "1"}, 404),
        ("PUT", f"{ALL}/none/subscription/none/properties", {"a": "1"}, 404),
        ("PUT", f"{T}/properties", {"a": {"b": "c"}}, 400),
        ("PUT", f"{T}/properties", ["a"], 400),
        ("PUT", f"{T}/subscription/new", EARLIEST | {"properties": "a"}, 400),
        ("GET", "/non-persistent/public/default/t/properties", None, 406),
        ("PUT", "/non-persistent/public/default/t/properties", {"a": "1"}, 406),
        ("DELETE", "/non-persistent/public/default/t/properties?key=a", None, 406),
        # Pulsar's client waits for these forever.
        ("PUT", f"{ALL}/none/properties", {"a": "1"}, 404),
        ("DELETE", f"{ALL}/none/properties?key=a", None, 404),
        ("PUT", f"{T}/properties", {"a": None}, 400),
        # The limits.
        ("PUT", f"{T}/properties", {"": "1"}, 412),
        ("PUT", f"{T}/properties", {f"k{at}": "" for at in range(101)}, 412),
        ("PUT", f"{ALL}/new", {"a": "x" * 16_384}, 412),
        ("PUT", f"{ALL}/new/partitions", {"partitions": 1, "properties": {"": "x"}}, 412),
        ("PUT", f"{T}/subscription/new", EARLIEST | {"properties": {"": "x"}}, 412),
    ],
)
def test_refused_requests_change_nothing(
    lab: HttpLab, method: str, path: str, body: Any, status: int
) -> None:
    lab.done("PUT", T, {"kept": "1"})
    lab.done("PUT", f"{P}/partitions", 2)
    assert lab.status(method, path, body) == status
    assert lab.get(f"{T}/subscriptions") == []
    assert lab.get(f"{ALL}/partitioned") == ["persistent://public/default/p"]
    assert properties(lab, T) == {"kept": "1"}


def test_a_non_persistent_topic_keeps_no_properties(lab: HttpLab) -> None:
    lab.done("PUT", "/non-persistent/public/default/t", {"a": "1"})
    partitions = "/non-persistent/public/default/p/partitions"
    lab.done("PUT", partitions, {"partitions": 2, "properties": {"x": "1"}})
    assert lab.get(partitions)["properties"] == {"x": "1"}


def test_the_compaction_cursor_has_no_properties(lab: HttpLab) -> None:
    lab.done("PUT", T)
    cursor = f"{T}/subscription/__compaction/properties"
    assert lab.status("GET", cursor) == lab.status("PUT", cursor, {"a": "1"}) == 405
