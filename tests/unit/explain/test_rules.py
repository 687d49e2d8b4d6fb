"""The rules of `explain` on histories of a few versions; and its unknowns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.compaction.threshold import Decision
from ledgerfold.broker.explain.notes import Outlook, notes
from ledgerfold.broker.explain.rules import (
    Explained,
    Facts,
    explain,
    explain_trimmed,
)
from ledgerfold.broker.explain.run_line import RunLine
from ledgerfold.broker.explain.text import KEEPS
from ledgerfold.broker.explain.versions import found_in
from ledgerfold.storage.entry import Position
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_ERROR,
    RUN_STATE_SUCCESS,
    CompactedView,
    CompactionStrategy,
    MessageId,
    RunCounts,
    RunRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord

IDLE = Decision(fire=False, why="", backlog_bytes=300, threshold_bytes=0, source="broker")


def version(entry_id: int, value_bytes: int = 1, batch_index: int = -1) -> KeyVersion:
    return KeyVersion(Position(1, entry_id), batch_index, 1000, 0, value_bytes, False)


def raw(entry_id: int, value_bytes: int = 1) -> KeyVersion:
    return version(entry_id, value_bytes)._replace(in_raw=True)


def both(entry_id: int, *, in_raw: bool = True) -> KeyVersion:
    return version(entry_id)._replace(in_raw=in_raw, in_compacted=True)


@given(st.sets(st.tuples(*[st.integers(0, 5)] * 2)), st.sets(st.tuples(*[st.integers(0, 5)] * 2)))
def test_versions_of_both_ledgers_are_merged(
    in_raw: set[tuple[int, int]], in_compacted: set[tuple[int, int]]
) -> None:
    """Each version once, in order of id, with the places where it is."""

    def versions(ids: set[tuple[int, int]]) -> list[KeyVersion]:
        return [version(entry_id, 1, index) for entry_id, index in sorted(ids)]

    found = list(found_in(versions(in_raw), versions(in_compacted), 3))
    assert [(each.position.entry_id, each.batch_index) for each in found] == sorted(
        in_raw | in_compacted
    )
    for each in found:
        id_ = each.position.entry_id, each.batch_index
        assert (each.in_raw, each.in_compacted) == (id_ in in_raw, id_ in in_compacted)
        assert each.partition == 3


def run(number: int, upto: int, *, previous: int = -1, retains: bool | None = False) -> RunRecord:
    """Returns a run that wrote the ledger 100 + number."""
    return RunRecord(
        number=number,
        state=RUN_STATE_SUCCESS,
        ledger_id=100 + number,
        previous_ledger_id=previous,
        horizon=PositionRecord(ledger_id=1, entry_id=upto),
        retain_null_key=retains,
        counts=RunCounts(messages_in=10, messages_out=4),
    )


def line(*runs: RunRecord) -> RunLine:
    return RunLine.of(runs, CompactedView(ledger_id=runs[-1].ledger_id, run_number=9))


def facts(upto: int, runs: RunLine, **others: object) -> Facts:
    return Facts(horizon=Position(1, upto), line=runs, **others)  # type: ignore[arg-type]


def told(explained: Explained) -> list[tuple[str, str]]:
    return [(each.what, each.next) for each in explained.versions]


TWO_RUNS = line(run(3, 10), run(7, 20, previous=103))


def test_each_version_has_the_rule_that_applied() -> None:
    """Kept and then obscured, a tombstone, deleted, newest; above the horizon, the forecast."""
    history = [raw(4), raw(12), raw(13, 0), both(18), raw(25), raw(26, 0), raw(27)]
    assert told(explain(history, facts(20, TWO_RUNS))) == [
        (
            "kept by run 3, superseded by 1:12, dropped by run 7",
            "its raw copy is removed when ledger 1 is trimmed",
        ),
        ("deleted by 1:13, dropped by run 7", "its raw copy is removed when ledger 1 is trimmed"),
        ("a tombstone, dropped by run 7", "its raw copy is removed when ledger 1 is trimmed"),
        (
            "newest up to the horizon 1:20, kept by run 7",
            "the next run drops it: superseded by 1:25",
        ),
        ("above the horizon 1:20", "the next run drops it: deleted by 1:26"),
        ("above the horizon 1:20", "the next run drops it: a tombstone"),
        ("above the horizon 1:20", "the next run keeps it"),
    ]


def test_messages_without_a_key_never_supersede_each_other() -> None:
    """Only the policies of the runs that met them count, and the one in force for the next."""
    runs = line(run(3, 10, retains=True), run(7, 20, previous=103, retains=False))
    history = [raw(4), raw(12), raw(25)]
    without = explain(history, facts(20, runs, has_key=False, retain_null_key=True))
    assert told(without) == [
        (
            "kept by run 3, null key, retain_null_key=false, dropped by run 7",
            "its raw copy is removed when ledger 1 is trimmed",
        ),
        (
            "null key, retain_null_key=false, dropped by run 7",
            "its raw copy is removed when ledger 1 is trimmed",
        ),
        ("above the horizon 1:20", "the next run keeps it"),
    ]


def test_retention_hides_before_it_drops() -> None:
    """Entries before the floor are removed with the next run, and take no part in it; the floor
    stays.
    """
    floor = Position(1, 8)
    history = [both(7, in_raw=False), both(8, in_raw=False)]
    explained = explain(history[:1], facts(20, TWO_RUNS, floor=floor))
    assert told(explained)[0] == (
        "newest up to the horizon 1:20, kept by run 3, but retention hides messages before 1:8",
        "the next run drops it: retention removed messages before 1:8",
    )
    first = facts(20, TWO_RUNS, floor=floor, strategy=CompactionStrategy(name="keep-first"))
    rules = [each.next_rule for each in explain(history, first).versions]
    assert rules[0] == pb.COMPACTION_RULE_RETENTION
    assert rules[1] in KEEPS


@pytest.mark.parametrize(
    ("history", "what"),
    [
        ([raw(4)], "does not hold it and should (newest up to the horizon 1:20)"),
        ([both(4), both(5)], "holds it and should not (superseded by 1:5)"),
    ],
)
def test_an_impossible_compacted_ledger_is_reported_as_damage(
    history: list[KeyVersion], what: str
) -> None:
    """Damage is reported, not explained away."""
    found = explain(history, facts(20, TWO_RUNS)).versions[0]
    assert found.state == pb.VERSION_STATE_INCONSISTENT
    assert found.what == f"INCONSISTENT: the compacted ledger {what}"


def test_a_run_may_end_before_its_predecessors_horizon() -> None:
    """As Pulsar's without new data: entries between are dropped and read again."""
    again = line(run(1, 10), run(2, 6, previous=101))
    history = [raw(3), raw(9, 0), raw(12)]
    assert told(explain(history, facts(6, again))) == [
        ("deleted by 1:9, dropped by run 1", "its raw copy is removed when ledger 1 is trimmed"),
        ("a tombstone, dropped by run 1", "the next run drops it: a tombstone"),
        ("above the horizon 1:6", "the next run keeps it"),
    ]
    assert again.null_keys_dropped_by(Position(1, 9)) == pb.RunSpan(first=1, last=2)
    assert again.null_keys_dropped_by(Position(1, 5)) == pb.RunSpan(first=1, last=1)
    assert again.messages_read is None


def test_deleted_run_records_are_not_guessed() -> None:
    """The oldest run that is known answers for all before it; failed runs answer for nothing."""
    known = line(run(7, 10, previous=55), run(8, 20, previous=107))
    assert known.first_over(Position(1, 5)) == pb.RunSpan(first=1, last=7)
    assert known.first_over(Position(1, 15)) == pb.RunSpan(first=8, last=8)
    assert known.messages_read is None
    what = explain([raw(3, 0)], facts(20, known)).versions[0].what
    assert what == "a tombstone, dropped by run 7 or an earlier one"
    view = CompactedView(
        ledger_id=104, run_number=4, horizon=PositionRecord(ledger_id=1, entry_id=9)
    )
    forgotten = RunLine.of([RunRecord(number=5, state=RUN_STATE_ERROR, ledger_id=-1)], view)
    assert forgotten.first_over(Position(1, 9)) == pb.RunSpan(first=1, last=4)


def test_a_run_without_a_recorded_policy_may_have_dropped_null_keys() -> None:
    """Only certain facts exclude a reason."""
    runs = line(
        run(1, 10, retains=True),
        run(2, 20, previous=101, retains=None),
        run(3, 30, previous=102, retains=None),
        run(4, 40, previous=103, retains=False),
        run(5, 50, previous=104, retains=False),
    )
    assert runs.null_keys_dropped_by(Position(1, 5)) == pb.RunSpan(first=2, last=4)
    assert runs.null_keys_dropped_by(Position(1, 45)) == pb.RunSpan(first=5, last=5)
    retaining = line(run(1, 10, retains=True))
    assert retaining.null_keys_dropped_by(Position(1, 5)) is None


def test_a_run_from_scratch_makes_earlier_runs_irrelevant() -> None:
    """A run without a compacted ledger read all raw data again, whatever earlier runs dropped."""
    fresh = line(run(1, 10), run(2, 20, previous=-1))
    assert fresh.first_over(Position(1, 5)) == pb.RunSpan(first=2, last=2)


def test_the_newest_versions_are_listed_and_the_others_counted() -> None:
    """The limit holds, and each reported version still names its successor."""
    explained = explain((raw(number) for number in range(50)), Facts(), versions_max=3)
    assert explained.older == 47
    assert [each.id.entry_id for each in explained.versions] == [47, 48, 49]
    assert explained.versions[0].next_by == MessageId(
        ledger_id=1, entry_id=48, batch_index=-1, partition=-1
    )


def test_one_copy_and_two_copies_are_distinguished() -> None:
    """Ids decide, batch index included."""
    both_ledgers = found_in(
        [version(1, batch_index=0), version(1, batch_index=2), version(3)],
        [version(0), version(1, batch_index=2)],
    )
    assert [(each.identity[1], each.in_raw, each.in_compacted) for each in both_ledgers] == [
        (-1, False, True),
        (0, True, False),
        (2, True, True),
        (-1, True, False),
    ]


def test_missing_messages_name_the_possible_runs() -> None:
    """The rule that removed it is unknown, and not invented."""
    message_id = MessageId(ledger_id=1, entry_id=4, batch_index=-1, partition=-1)
    trimmed = explain_trimmed(message_id, facts(20, TWO_RUNS))
    assert trimmed.place == pb.VERSION_PLACE_TRIMMED
    assert trimmed.dropped_by == pb.RunSpan(first=3, last=7)
    assert trimmed.what.endswith("one of the runs 3 to 7; reason no longer known")
    never = explain_trimmed(message_id, Facts())
    assert never.what == "if it existed, it was trimmed before a run read it"


def test_notes_list_the_facts_used() -> None:
    """Horizon, trimmed ledgers, time of the next run."""
    compacted = facts(20, TWO_RUNS, floor=Position(1, 8))
    outlook = Outlook(last=Position(1, 27), has_news=True, decision=IDLE, raw_messages=6)
    assert notes(outlook, compacted, older=1200) == [
        "1,200 older versions are not listed.",
        "Horizon 1:20, set by run 7; the log ends at 1:27.",
        "10 messages are trimmed; those in the compacted ledger are listed.",
        "Retention removed messages before 1:8.",
        "Strategy publishing-order.",
        "The next run starts with a trigger; no threshold is set.",
    ]
    one = notes(replace(outlook, raw_messages=15), compacted, older=0)
    assert "1 message is trimmed; it is listed if it is in the compacted ledger." in one
    changed = replace(compacted, strategy=CompactionStrategy(name="event-time"))
    missed = [pb.ExplainedVersion(is_missed=True)]
    assert notes(outlook, changed, older=0, listed=missed)[-3:-1] == [
        "Strategy event-time; up to run 7 it was publishing-order.",
        "A message that a run dropped does not return under a later strategy.",
    ]
    above = Decision(False, "", 300, 5000, "namespace")
    assert notes(Outlook(Position(1, 27), True, above), Facts(), 0)[-1] == (
        "The next run starts with a trigger, or above 5,000 bytes of backlog"
        " (the threshold of the namespace); the backlog is 300 bytes."
    )
    assert notes(Outlook(Position(1, 20), False, above), compacted, 0)[-1] == (
        "No messages are above the horizon: a trigger starts no run."
    )
    assert notes(Outlook(Position(1, 20), True, above, running=8), compacted, 0)[-1] == (
        "Run 8 is in progress."
    )
