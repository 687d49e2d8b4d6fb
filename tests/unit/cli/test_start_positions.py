"""Tests the notation of start positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.cli.output import message_id_text
from ledgerfold.broker.cli.start_positions import parse_message_id, parse_start, topic_of
from ledgerfold.broker.client import MessageId
from ledgerfold.storage.errors import InvalidRequest
from tests.unit.cli.conftest import Ledgerfold

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", MessageId.earliest),
        ("latest", MessageId.latest),
        ("12:3", MessageId(-1, 12, 3, -1)),
        ("12:3:0", MessageId(0, 12, 3, -1)),
        ("12:3:-1", MessageId(-1, 12, 3, -1)),
        ("12:3:-1:4", MessageId(-1, 12, 3, 4)),
        ("12:3:2:4", MessageId(2, 12, 3, 4)),
        ("12:3:2:-1", MessageId(2, 12, 3, -1)),
        (f"{INT64_MAX}:{INT64_MAX}", MessageId(-1, INT64_MAX, INT64_MAX, -1)),
        ("0", 0),
        ("1704067200000", 1_704_067_200_000),
        ("2024-01-01T00:00:00Z", 1_704_067_200_000),
        ("2024-01-01T02:00:00.250+02:00", 1_704_067_200_250),
    ],
)
def test_valid_start_positions(text: str, start: MessageId | int) -> None:
    """Ids as printed, here and in Python; times in ms and in ISO 8601."""
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Earliest",
        "abc",
        "-5",
        "1.5",
        "12:",
        ":3",
        "12:x",
        "-1:-1",
        "1:2:3:4:5",
        "12:3:-2",
        "12:3::4",
        f"{INT64_MAX + 1}:0",
        f"0:{INT64_MAX + 1}",
        f"0:0:{2**31}",
        f"0:0:{2**31}:0",
        str(INT64_MAX + 1),
        "1969-12-31T23:00:00Z",
        "2024-13-01",
        "0001-01-01",
        "\u0661:\u0662",
    ],
)
def test_invalid_start_positions(text: str) -> None:
    """The error lists the valid forms."""
    with pytest.raises(InvalidRequest, match="expected earliest, latest") as caught:
        parse_start(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["1704067200000", "2024-01-01", "x", ""])
def test_options_for_ids_reject_a_time(text: str) -> None:
    """Tests options that accept only an id."""
    assert parse_message_id(text) is None


@given(
    st.integers(0, INT64_MAX),
    st.integers(0, INT64_MAX),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
)
def test_every_printed_id_can_be_parsed(
    ledger: int, entry: int, index: int, partition: int
) -> None:
    """So a line of output can be used as a start position."""
    message_id = MessageId(partition, ledger, entry, index)
    assert parse_start(message_id_text(message_id)) == message_id
    assert str(message_id) == message_id_text(message_id)


def test_an_id_of_a_partition_on_the_whole_topic() -> None:
    """Tests ids on a topic named as a whole; an id of another partition is rejected."""
    of_two, of_none = MessageId(2, 12, 3, 0), MessageId(-1, 12, 3, 0)
    assert topic_of("t", of_two) == topic_of("t-partition-2", of_two) == "t-partition-2"
    assert topic_of("t", of_none) == "t"
    assert topic_of("t-partition-1", of_none) == "t-partition-1"
    with pytest.raises(InvalidRequest, match="partition 2, which is not t-partition-1"):
        topic_of("t-partition-1", of_two)


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("batch", [(), ("--batch",)])
def test_every_command_accepts_printed_ids(
    cli: Ledgerfold, topic: str, partitions: int, batch: tuple[str, ...]
) -> None:
    """Tests ids of a topic and of a partitioned one, of single messages and of batches."""
    if partitions:
        assert cli("topics", "create-partitioned-topic", topic, "-p", str(partitions)).code == 0
    lines = b"".join(b"k%d:%d\n" % (n % 4, n) for n in range(8))
    assert cli("produce", topic, "-K", ":", *batch, stdin=lines).code == 0
    assert cli("consume", topic, "-s", "s", "-p", "Earliest", "--until-end").code == 0
    rows = cli("read", topic, "--until-end").rows
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == 8
    listed = [cli("explain", topic, "--key", f"k{n}").rows for n in range(4)]
    assert sorted(row["id"] for rows in listed for row in rows) == sorted(ids)
    for row in rows[::3]:
        (told,) = cli("explain", topic, "--at", row["id"]).rows
        assert told["id"] == row["id"]
        (again,) = cli("read", topic, "--from", row["id"], "-i", "-n", "1").rows
        assert again == row
        reset = cli("topics", "reset-cursor", topic, "-s", "s", "-m", row["id"])
        assert reset == (0, "", "")
