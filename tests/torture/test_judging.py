"""Tests that the torture reports errors: each of its counts can rise."""

from __future__ import annotations

from array import array

import pytest

from ledgerfold.broker.client import Message
from ledgerfold.broker.client.messages.message import ReceivedEntry
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import read_header, stamp
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from ledgerfold.storage.native import NativeBatchBuilder
from tests.torture.bookkeeping import Books
from tests.torture.compactions import Compactions
from tests.torture.kafka_producing import SEQUENCE
from tests.torture.kafka_reading import KafkaOrigins
from tests.torture.messages import COLD_KEYS, KEYS, Messages
from tests.torture.report import Verdict, table
from tests.torture.seen import Seen, empty, packed, unpacked
from tests.torture.settings import TortureSettings
from tests.torture.tally import Tally

SEED = 1
MESSAGES = Messages("p", SEED)
COUNT = 2_000


def books(acknowledged: int = COUNT - 1) -> Books:
    made = Books({"t": ["p"]}, SEED)
    made.sent("p", acknowledged)
    made.acknowledged("p", acknowledged)
    return made


def latest(upto: int = COUNT) -> array[int]:
    found = empty()
    for sequence_id in range(upto):
        found[MESSAGES.key_index(sequence_id)] = sequence_id
    return found


def cold(*, tombstone: bool) -> int:
    """A sequence id below COUNT that is its key's last."""
    return next(each for each in range(0, COUNT, 2) if MESSAGES.is_tombstone(each) is tombstone)


def judged(found: array[int], *, is_exact: bool = False) -> list[str]:
    made = books()
    made.judge(made.snapshot("t"), {"p": found}, "view", is_exact=is_exact)
    return made.lost()


def test_a_complete_view_is_accepted() -> None:
    assert judged(latest()) == judged(latest(), is_exact=True) == []


def test_a_later_message_of_the_key_is_accepted() -> None:
    found = latest()
    found[MESSAGES.key_index(cold(tombstone=False))] = 2 * COLD_KEYS
    assert judged(found) == []


@pytest.mark.parametrize("met", [-1, 1])
def test_a_missing_message_is_lost(met: int) -> None:
    """Tests a missing message, and an older one in its place."""
    missing, found = cold(tombstone=False), latest()
    found[MESSAGES.key_index(missing)] = min(met, missing - 1)
    for is_exact in (False, True):
        assert judged(found, is_exact=is_exact) == [f"p: 1 between {missing} and {missing}"]


def test_a_deleted_key_may_be_missing_and_must_be_at_the_end() -> None:
    """A reader that a compaction overtook may know an older value; the last view may not."""
    deleted, found = cold(tombstone=True), latest()
    index = MESSAGES.key_index(deleted)
    found[index] = -1
    assert judged(found) == judged(found, is_exact=True) == []
    made = books()
    expected = made.snapshot("t")
    # As if an older value of the key were there.
    expected["p"][index], found[index] = deleted, deleted - 1
    assert made.judge(expected, {"p": found}, "view") == 0
    assert made.judge(expected, {"p": found}, "view", is_exact=True) == 1


def test_a_later_deletion_explains_an_absent_key() -> None:
    """The receipt may arrive after the snapshot; at the end this is impossible."""
    hot = next(each for each in range(COUNT, 2 * COUNT) if MESSAGES.is_tombstone(each) and each % 2)
    index, found = MESSAGES.key_index(hot), latest()
    assert not MESSAGES.is_tombstone(found[index])
    found[index] = -1
    assert judged(found) == []
    assert judged(found, is_exact=True) != []


def test_a_gap_counts_as_one_loss() -> None:
    made = books()
    made.gap("p", 5, 9)
    made.gap("p", 9, 10)
    assert made.lost() == ["p: 6 between 5 and 10"]
    assert made.missed_by["consumer"] == 6


def received(entry_id: int, sequence_id: int, content: bytes | None = None) -> Message:
    builder = NativeBatchBuilder("p")
    value = MESSAGES.content(sequence_id) if content is None else content
    builder.add(value, MESSAGES.key(sequence_id).encode())
    built = builder.build(sequence_id=sequence_id, publish_time_ms=1, compression=0)
    entry = stamp(built, 1, entry_id, append_time_ms=1, producer_number=1)
    header = read_header(entry)
    return Message((ReceivedEntry(header, decode(entry, header), "t", 0), 0))


def problems(*messages: Message) -> list[tuple[str, str, int]]:
    seen = Seen({"p": MESSAGES})
    for message in messages:
        seen.take(message)
    return seen.take_problems()


def test_the_order_of_a_readers_messages_is_checked() -> None:
    """Order, once, and as sent."""
    assert problems(received(0, 4), received(1, 5), received(3, 9)) == []
    assert problems(received(0, 4), received(1, 4)) == [("duplicate", "p", 4)]
    assert problems(received(0, 4), received(1, 2)) == [("disorder", "p", 2)]
    assert problems(received(1, 4), received(0, 5)) == [("disorder", "p", 5)]
    assert problems(received(0, 4, b"else")) == [("foreign", "p", 4)]


def test_messages_pass_unchanged_through_the_pipe() -> None:
    assert unpacked(packed({"p": latest()})) == {"p": latest()}
    assert len(latest()) == KEYS


def test_the_verdict_names_every_count() -> None:
    """A round without faults and failures is passed; each failure alone is not."""
    tally, made = Tally(), books()
    tally.runs["SUCCESS"] += 3
    tally.runs["BROKER_RESTARTED"] += 1
    assert Verdict(tally, made).wrong() == []
    made.gap("p", 1, 2)
    for kind in ("duplicate", "disorder", "foreign"):
        made.problem(kind, "p", 7)
    made.error("reader", "DATA_CORRUPT: ...")
    made.sent("p", COUNT)
    tally.starts_failed = tally.runs_never_ended = tally.left_behind = 1
    tally.workers_never_ready = 1
    tally.runs["COMPACTION_CANCELLED"] += 1
    tally.hanging.add("a reader")
    tally.not_converged.append("stop: ...")
    assert [line.split()[0] for line in Verdict(tally, made).wrong()] == ["2", *"1" * 12]
    assert "COMPACTION_CANCELLED 1" in table(Verdict(tally, made))


def test_a_compactor_that_is_not_ready_in_time_is_counted() -> None:
    """It is counted once, and its broker restarted."""
    settings, tally = TortureSettings(minutes=1, worker_stall_s=0), Tally()
    compactions = Compactions("t", "127.0.0.1:1", tally, settings)
    compactions._check_ready(is_ready=True)
    assert (tally.workers_never_ready, compactions.is_stuck.is_set()) == (0, False)
    compactions._check_ready(is_ready=False)
    assert (tally.workers_never_ready, compactions.is_stuck.is_set()) == (1, True)


def test_a_record_has_the_offset_of_its_receipt() -> None:
    """Others may lie between; a record without a receipt may have any offset."""
    made = books()
    made.stored("p", 0, 3, 10)
    made.stored("p", 3, 1, 20)
    made.met("p", [0, 10, 2, 12, 3, 20, 4, 99])
    assert (made.moved, made.disordered) == (set(), set())
    made.met("p", [1, 12, 3, 20])
    assert made.moved == {("p", 1)}
    made.stored("p", 9, 1, 30)
    assert made.disordered == {("p", 9)}


def test_the_header_and_key_of_a_kafka_record_name_its_origin() -> None:
    built = build_batch(
        [
            KafkaRecord(at + 7, 1, MESSAGES.key(at).encode(), MESSAGES.content(at) or None, header)
            for at, header in ((at, ((SEQUENCE, b"%d" % at),)) for at in range(40))
        ],
        base_offset=7,
    )
    entry = stamp(entry_of(built, sequence_id=39, publish_time_ms=1), 0, 46, 1, 1)
    header = read_header(entry)
    received = ReceivedEntry(header, decode(entry, header), "t", 0)
    seen = KafkaOrigins({"p": MESSAGES})
    for row in range(40):
        seen.take(Message((received, row)))
    assert seen.take_problems() == []
    assert seen.last_sequence_ids == {"p": 39}
    seen.take(Message((received, 39)))
    assert seen.take_problems() != []
