"""The cursor `__compaction`, moved by hand: what readers, runs and trims see.

The expectations under `pulsar-4` are answers of a Pulsar 4.0.7 (docs/PROFILES.md, rule 6.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.compaction import cursor_operations as compaction_moves
from ledgerfold.broker.compaction.snapshot import snapshot
from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.broker.stats.topic import internal_stats
from ledgerfold.broker.subscriptions.lifecycle import create_subscription, delete_subscription
from ledgerfold.broker.topics.operations import disable_compaction, truncate_topic
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    NothingExpired,
    SubscriptionNotFound,
)
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, MessageId, Policies
from ledgerfold.v1.records_pb2 import Emulation as Settings
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

SUBSCRIPTION = "__compaction"
LATEST = StartPosition(latest=True)


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    lab.topic.record.policies.emulation.CopyFrom(Settings(profile="pulsar-4"))
    yield lab
    lab.stop()


def send(lab: BrokerLab, text: str) -> list[Position]:
    """ "a=1 b=": messages published alone; nothing behind "=" is a tombstone."""
    pairs = [each.split("=") for each in text.split()]
    return lab.publish([([Message(k.encode(), v.encode())], False) for k, v in pairs])


def view(lab: BrokerLab, start: Position = EARLIEST) -> str:
    found = [each.message for each in lab.read(start, read_compacted=True)]
    return " ".join(f"{(k or b'').decode()}={(v or b'').decode()}" for k, v, *_ in found)


def at(position: Position) -> StartPosition:
    there = MessageId(ledger_id=position.ledger_id, entry_id=position.entry_id, batch_index=-1)
    return StartPosition(message_id=there, inclusive=True)


def reset(lab: BrokerLab, start: StartPosition) -> None:
    lab.run(compaction_moves.reset(lab.topic, start))


def cursor(lab: BrokerLab) -> dict[str, Any]:
    found: dict[str, Any] = internal_stats(lab.broker, lab.topic)["cursors"][SUBSCRIPTION]
    return found


def unload(lab: BrokerLab) -> None:
    lab.run(lab.broker.unload_topic(TOPIC))


def call(lab: BrokerLab, name: str, **fields: Any) -> Any:
    """Makes a call of AdminService and raises its errors."""
    request = getattr(admin_pb2, f"{name}Request")(topic=TOPIC, subscription=SUBSCRIPTION, **fields)
    return lab.run(admin_calls(lab.broker)[name](request))


def test_a_cursor_moved_back_is_visible_at_once_and_counts_after_a_load(lab: BrokerLab) -> None:
    sent = send(lab, "a=1 b=1 a=2 c= b=2")
    lab.compact()
    reset(lab, at(sent[1]))
    assert cursor(lab)["markDeletePosition"] == str(sent[0])
    assert cursor(lab)["properties"], "the compacted ledger's id stays"
    assert (view(lab), view(lab, sent[3])) == ("a=2 b=2", "b=2")
    unload(lab)
    assert cursor(lab)["markDeletePosition"] == str(sent[0])
    # From the beginning the compacted ledger comes first, then the raw entries after it.
    assert view(lab) == "a=2 b=2"
    assert view(lab, sent[1]) == "b=1 a=2 c= b=2"
    assert view(lab, sent[3]) == "c= b=2"


def test_after_a_move_back_a_run_continues_from_the_compacted_ledger(lab: BrokerLab) -> None:
    """It reads entries from the compacted ledger, and not again from the raw ledgers."""
    sent = send(lab, "a=1 b=1 a=2")
    lab.compact()
    reset(lab, at(sent[1]))
    unload(lab)
    taken = lab.run(snapshot(lab.topic))
    assert taken is not None
    assert (taken.raw_after, taken.horizon) == (sent[2], sent[2])
    assert len(taken.segments) == taken.compacted_segments
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert (view(lab), cursor(lab)["markDeletePosition"]) == ("b=1 a=2", str(sent[2]))


def test_after_a_move_back_a_run_finds_a_dead_last_entry(lab: BrokerLab) -> None:
    """A range that began before it made the run fail. No test had dead messages at the end."""
    batch = [Message(b"%d" % key, b"1") for key in range(30)]
    first, last = lab.publish([(batch, True), ([Message(b"a", b"1")], False)])
    lab.compact()
    send(lab, "a=")
    lab.compact()
    reset(lab, at(first))
    unload(lab)
    taken = lab.run(snapshot(lab.topic))
    assert taken is not None
    assert taken.raw_after == last
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert view(lab) == " ".join(f"{key}=1" for key in range(30))


def test_after_a_move_back_dropped_entries_are_visible_until_a_run(
    lab: BrokerLab,
) -> None:
    sent = send(lab, "a=1 b=1 b= c=1 c=")
    lab.compact()
    reset(lab, at(sent[1]))
    unload(lab)
    assert view(lab) == "a=1 b=1 b= c=1 c="
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert view(lab) == "a=1"
    assert cursor(lab)["markDeletePosition"] == str(sent[-1])


def test_a_cursor_before_entries_that_were_all_trimmed(lab: BrokerLab) -> None:
    """After an empty run the cursor is in a ledger that does not exist, as in Pulsar 4.0.7.

    No history had trimmed all entries of a topic before its first run.
    """
    [sent] = send(lab, "a=1")
    unload(lab)
    lab.run(lab.topic.trim())
    assert sent.ledger_id not in lab.topic.log.ledgers
    lab.compact()
    assert cursor(lab)["markDeletePosition"] == str(Position(sent.ledger_id, -1))
    unload(lab)
    begin = Position(lab.topic.log.ledgers.ids[0], -1)
    assert cursor(lab)["markDeletePosition"] == str(begin)


def test_trimming_uses_the_compaction_cursor(lab: BrokerLab) -> None:
    """Ledgers of 6 entries: the first is full, and the run has passed it."""
    start = StartPosition(earliest=True)
    lab.run(create_subscription(lab.topic, "holds", start))
    first = send(lab, "a=1 b=1 c=1 d=1 e=1 f=1 a=2")[0]
    lab.compact()
    reset(lab, at(first))
    lab.run(delete_subscription(lab.topic, "holds"))
    lab.run(lab.topic.trim())
    assert first.ledger_id in lab.topic.log.ledgers
    reset(lab, LATEST)
    lab.run(lab.topic.trim())
    assert first.ledger_id not in lab.topic.log.ledgers


def test_after_a_move_forward_a_run_skips_what_no_run_has_read(lab: BrokerLab) -> None:
    send(lab, "a=1 b=1")
    lab.compact()
    unseen = send(lab, "a=2 c=1")
    reset(lab, LATEST)
    assert cursor(lab)["markDeletePosition"] == str(unseen[-1])
    assert view(lab) == "a=1 b=1 a=2 c=1"
    send(lab, "d=1")
    lab.compact()
    assert view(lab) == "a=1 b=1 d=1"
    assert not lab.topic.record.HasField("compaction_moved_to")


def test_after_a_move_forward_readers_miss_entries_after_a_load(lab: BrokerLab) -> None:
    send(lab, "a=1 b=1 b=")
    lab.compact()
    send(lab, "a=2 c=1")
    reset(lab, LATEST)
    lab.restart()
    assert view(lab) == "a=1"
    send(lab, "d=1")
    assert view(lab) == "a=1 d=1"


def test_a_run_that_cannot_reach_its_end_fails(lab: BrokerLab) -> None:
    send(lab, "a=1 b=1")
    lab.run(lab.topic.enable_compaction_cursor())
    reset(lab, LATEST)
    run = lab.compact()
    assert run is not None
    assert run.state == RUN_STATE_ERROR
    assert "timed out" in run.error_message
    assert view(lab) == "a=1 b=1"
    send(lab, "c=1")
    lab.compact()
    assert view(lab) == "c=1"


def test_a_first_run_begins_after_a_moved_cursor(lab: BrokerLab) -> None:
    sent = send(lab, "a=1 b=1 c=1")
    lab.run(lab.topic.enable_compaction_cursor())
    reset(lab, at(sent[1]))
    lab.compact()
    assert view(lab) == "b=1 c=1"


def test_valid_targets_of_the_compaction_cursor(lab: BrokerLab) -> None:
    sent = send(lab, "a=1 b=1 c=1")
    lab.compact()
    for start, expected in (
        (StartPosition(earliest=True), Position(sent[0].ledger_id, -1)),
        (at(sent[0]), Position(sent[0].ledger_id, -1)),
        (at(Position(sent[0].ledger_id + 1_000, 5)), sent[2]),
        (LATEST, sent[2]),
        (StartPosition(publish_time_ms=1), Position(sent[0].ledger_id, -1)),
        (StartPosition(publish_time_ms=lab.clock.now_ms() + 1_000_000), sent[2]),
    ):
        reset(lab, start)
        assert cursor(lab)["markDeletePosition"] == str(expected), start


def test_skip_and_clear_backlog_drop_the_compacted_ledger_at_the_next_load(
    lab: BrokerLab,
) -> None:
    send(lab, "a=1 b=1 b=")
    lab.compact()
    sent = send(lab, "a=2 c=1 d=1")
    assert call(lab, "SkipMessages", entries=1).entries == 1
    assert (cursor(lab)["markDeletePosition"], cursor(lab)["properties"]) == (str(sent[0]), {})
    assert call(lab, "ClearBacklog").entries == 2
    assert cursor(lab)["markDeletePosition"] == str(sent[2])
    assert view(lab) == "a=1 a=2 c=1 d=1"
    unload(lab)
    assert internal_stats(lab.broker, lab.topic)["compactedLedger"]["ledgerId"] == -1
    with pytest.raises(InvalidRequest, match="minimum: 1"):
        call(lab, "SkipMessages", entries=0)


def test_a_run_after_a_skip_leaves_an_empty_ledger(lab: BrokerLab) -> None:
    send(lab, "a=1 b=1 b=")
    lab.compact()
    send(lab, "a=2")
    call(lab, "ClearBacklog")
    send(lab, "f=1")
    lab.compact()
    unload(lab)
    assert view(lab) == "a=1 f=1"


def test_a_reset_after_a_skip_does_not_restore_the_compacted_ledger(lab: BrokerLab) -> None:
    sent = send(lab, "a=1 b=1 a=2")
    lab.compact()
    send(lab, "c=1")
    call(lab, "SkipMessages", entries=1)
    reset(lab, at(sent[1]))
    assert view(lab) == "b=1 a=2 c=1"
    unload(lab)
    assert cursor(lab)["markDeletePosition"] == str(sent[0])
    assert view(lab) == "a=1 b=1 a=2 c=1"
    lab.compact()
    assert view(lab) == "b=1 a=2 c=1"


def test_expiry_of_the_compaction_cursor_keeps_the_compacted_ledger(lab: BrokerLab) -> None:
    send(lab, "a=1 b=1 a=2")
    lab.compact()
    with pytest.raises(NothingExpired):
        call(lab, "ExpireMessages", older_than_ms=1_000)
    old = send(lab, "c=1")
    lab.advance(10_000)
    send(lab, "d=1")
    assert call(lab, "ExpireMessages", older_than_ms=5_000).entries == 1
    assert cursor(lab)["markDeletePosition"] == str(old[0])
    unload(lab)
    assert view(lab) == "b=1 a=2 d=1"
    with pytest.raises(InvalidRequest):
        call(lab, "ExpireMessages", older_than_ms=0)


def test_expiry_of_the_compaction_cursor_up_to_a_message(lab: BrokerLab) -> None:
    send(lab, "a=1 b=1 a=2")
    lab.compact()
    sent = send(lab, "c=1 d=1")

    def expire(ledger_id: int, entry_id: int) -> int:
        through = MessageId(ledger_id=ledger_id, entry_id=entry_id, partition=-1)
        return int(call(lab, "ExpireMessages", through=through).entries)

    assert expire(*sent[0]) == 1
    assert expire(*EARLIEST) == 0
    with pytest.raises(NothingExpired):
        expire(*sent[1].next)
    assert cursor(lab)["markDeletePosition"] == str(sent[0])
    unload(lab)
    assert view(lab) == "b=1 a=2 d=1"


def test_expiry_of_all_subscriptions_skips_the_compaction_cursor(lab: BrokerLab) -> None:
    sent = send(lab, "a=1")
    lab.compact()
    send(lab, "b=1")
    lab.advance(10_000)
    request = admin_pb2.ExpireMessagesRequest(topic=TOPIC, older_than_ms=1_000)
    lab.run(admin_calls(lab.broker)["ExpireMessages"](request))
    assert cursor(lab)["markDeletePosition"] == str(sent[0])


def test_truncation_and_deletion_discard_the_move(lab: BrokerLab) -> None:
    sent = send(lab, "a=1 b=1")
    lab.compact()
    reset(lab, at(sent[0]))
    lab.run(truncate_topic(lab.broker, TOPIC))
    assert cursor(lab)["markDeletePosition"] == str(sent[1])
    reset(lab, at(sent[0]))
    lab.run(disable_compaction(lab.broker, TOPIC))
    assert not lab.topic.record.HasField("compaction_moved_to")
    with pytest.raises(SubscriptionNotFound):
        reset(lab, LATEST)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ResetCursor", {"start": LATEST}),
        ("SkipMessages", {"entries": 1}),
        ("ClearBacklog", {}),
        ("ExpireMessages", {"older_than_ms": 1_000}),
    ],
)
def test_the_documented_profile_refuses_to_move_the_cursor(
    lab: BrokerLab, name: str, fields: dict[str, object]
) -> None:
    """The cursor would pass entries that no run has read; it is refused on an empty topic, too."""
    lab.topic.record.policies.CopyFrom(Policies())
    send(lab, "a=1")
    lab.compact()
    with pytest.raises(NotAllowed, match="pulsar-4"):
        call(lab, name, **fields)
    sent = send(lab, "b=1")
    with pytest.raises(NotAllowed, match=r"would be lost.*pulsar-4"):
        call(lab, name, **fields)
    unload(lab)
    assert view(lab) == "a=1 b=1"
    lab.compact()
    assert (view(lab), cursor(lab)["markDeletePosition"]) == ("a=1 b=1", str(sent[0]))
