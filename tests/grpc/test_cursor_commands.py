"""Message TTL, expiry, reset-cursor, skip, clear-backlog: from the command line to the consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgerfold.broker.cli.main import main
from ledgerfold.broker.client import Client, Consumer, InitialPosition, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    NothingExpired,
    SubscriptionNotFound,
)
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS

HOUR_MS = 3_600_000


@pytest.fixture
def broker_arguments() -> list[str]:
    return ["--test-clock"]


@pytest.fixture
def topics(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs `ledgerfold topics`; returns the exit code and the output."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["--url", broker.url, "topics", *arguments])
        return code, capsys.readouterr().out.strip()

    return run


def publish_hourly(client: Client, admin: Admin, count: int) -> list[MessageId]:
    """Publishes one message per hour."""
    producer = client.create_producer("t")
    ids = []
    for number in range(count):
        ids.append(producer.send(b"%d" % number))
        admin.move_clock(advance_ms=HOUR_MS)
    producer.close()
    return ids


def values(consumer: Consumer, count: int) -> list[bytes]:
    return [consumer.receive(WAIT_MS).data() for _ in range(count)]


def subscribe(client: Client, name: str = "s") -> Consumer:
    return client.subscribe("t", name, initial_position=InitialPosition.Earliest)


def backlog(admin: Admin, subscription: str = "s") -> int:
    return int(admin.stats("t")["subscriptions"][subscription]["msgBacklog"])


def test_message_ttl_on_the_command_line(
    broker: BrokerProcess,
    client: Client,
    admin: Admin,
    topics: Callable[..., tuple[int, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Set, shown in seconds, inherited, removed; it applies at the next check."""
    subscribe(client).close()
    publish_hourly(client, admin, 3)
    assert topics("get-message-ttl", "t") == (0, "null")
    assert topics("set-message-ttl", "t", "-t", "90m") == (0, "")
    assert topics("get-message-ttl", "t") == (0, "5400")
    admin.move_clock(advance_ms=1)
    assert backlog(admin) == 1
    assert topics("remove-message-ttl", "t") == (0, "")
    namespace = ["--url", broker.url, "namespaces", "set-message-ttl", "public/default"]
    assert main([*namespace, "-ttl", "30"]) == 0
    assert topics("get-message-ttl", "t", "-ap") == (0, "30")
    admin.move_clock(advance_ms=1)
    assert backlog(admin) == 0


def test_expire_messages_on_the_command_line(
    client: Client, admin: Admin, topics: Callable[..., tuple[int, str]]
) -> None:
    """Tests one subscription, then all; rejected if there is nothing to do."""
    subscribe(client, "s").close()
    subscribe(client, "other").close()
    publish_hourly(client, admin, 4)
    assert topics("expire-messages", "t", "-s", "s", "-t", "3h") == (0, "1 entry expired")
    assert (backlog(admin), backlog(admin, "other")) == (3, 4)
    expired = topics("expire-messages-all-subscriptions", "t", "--expire-time", "150m")
    assert expired == (0, "3 entries expired")
    assert (backlog(admin), backlog(admin, "other")) == (2, 2)
    assert values(subscribe(client), 2) == [b"2", b"3"]
    with pytest.raises(NothingExpired, match="nearly caught up"):
        admin.expire_messages("t", "s", 100 * HOUR_MS)
    with pytest.raises(SubscriptionNotFound):
        admin.expire_messages("t", "nobody", HOUR_MS)
    with pytest.raises(NotAllowed, match="__compaction"):
        admin.expire_messages("t", "__compaction", HOUR_MS)


def test_messages_expire_up_to_one(
    client: Client, admin: Admin, topics: Callable[..., tuple[int, str]]
) -> None:
    """On the command line, and in Python."""
    subscribe(client).close()
    ids = publish_hourly(client, admin, 4)
    expire = ("expire-messages", "t", "-s", "s", "-p")
    assert topics(*expire, str(ids[1])) == (0, "2 entries expired")
    assert topics(*expire, str(ids[0])) == (0, "0 entries expired")
    assert admin.expire_messages("t", "s", through=ids[2]) == 1
    assert values(subscribe(client), 1) == [b"3"]
    assert [topics(*expire, each)[0] for each in ("latest", "x", "99999:0")] == [2, 2, 5]
    with pytest.raises(InvalidRequest, match="older than 0 ms"):
        admin.expire_messages("t", "s")
    with pytest.raises(InvalidRequest, match="Name a subscription"):
        admin.expire_messages("t", "s", 1, through=ids[3])
    with pytest.raises(InvalidRequest, match="Name a subscription"):
        admin.expire_messages("t", "", through=ids[3])
    with pytest.raises(NotAllowed, match="__compaction"):
        admin.expire_messages("t", "__compaction", through=ids[3])


def test_a_cursor_is_reset_to_a_time_ago_or_to_a_message(
    client: Client, admin: Admin, topics: Callable[..., tuple[int, str]]
) -> None:
    """By the broker's clock; the connected consumer reconnects and reads on from there."""
    ids = publish_hourly(client, admin, 4)
    consumer = subscribe(client)
    assert len(values(consumer, 4)) == 4
    for arguments, expected in (
        (["-t", "2h"], [b"2", b"3"]),
        (["-t", "30m"], []),
        (["-m", f"{ids[1].ledger_id()}:{ids[1].entry_id()}"], [b"1", b"2", b"3"]),
        (["-m", f"{ids[1].ledger_id()}:{ids[1].entry_id()}", "-e"], [b"2", b"3"]),
        (["-m", "latest"], []),
        (["-m", "earliest"], [b"0", b"1", b"2", b"3"]),
    ):
        assert topics("reset-cursor", "t", "-s", "s", *arguments) == (0, "")
        assert backlog(admin) == len(expected), arguments
        assert values(consumer, len(expected)) == expected, arguments


def test_skip_and_clear_backlog(
    client: Client, admin: Admin, topics: Callable[..., tuple[int, str]]
) -> None:
    """Durable when the command returns."""
    subscribe(client).close()
    publish_hourly(client, admin, 5)
    assert topics("skip", "t", "-s", "s", "-n", "2") == (0, "2 entries skipped")
    assert values(subscribe(client), 3) == [b"2", b"3", b"4"]
    assert topics("clear-backlog", "t", "-s", "s") == (0, "3 entries skipped")
    assert topics("clear-backlog", "t", "-s", "s") == (0, "0 entries skipped")
    assert backlog(admin) == 0
