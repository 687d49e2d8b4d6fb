"""Tests `explain`'s texts under each strategy, on a few versions of one key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ledgerfold.broker.explain.rules import Facts, explain
from ledgerfold.broker.explain.run_line import RunLine
from ledgerfold.broker.explain.strategies import rules_of
from ledgerfold.broker.explain.strategies.evaluator import RunParameters
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import Position
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_SUCCESS,
    CompactedView,
    CompactionStrategy,
    RunRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord

EVENT_TIME = CompactionStrategy(name="event-time")
NOW_MS = 10_000_000
HOUR_MS = 3_600_000


def raw(entry_id: int, value_bytes: int = 1, event_ms: int = 0, index: int = -1) -> KeyVersion:
    version = KeyVersion(Position(1, entry_id), index, NOW_MS, event_ms, value_bytes, False)
    return version._replace(in_raw=True)


def both(entry_id: int, event_ms: int = 0) -> KeyVersion:
    return raw(entry_id, event_ms=event_ms)._replace(in_compacted=True)


def told_by(
    name: str,
    versions: list[KeyVersion],
    settings: Mapping[str, str] | None = None,
    values: Mapping[str, bytes] | None = None,
) -> list[str]:
    """Each version by its id: why it is dropped, or kept, in one run."""

    def read(found: KeyVersion) -> StoredMessage:
        value = (values or {}).get(found.name, b"")
        return StoredMessage(-1, 1, b"k", False, value, False, {"v": value.decode()}, 0, 0, None)

    evaluator = rules_of(name).evaluator(RunParameters(name, settings or {}, NOW_MS, read))
    decisions = [decision for version in versions for decision in evaluator.process(version)]
    decisions += evaluator.keeps()
    decisions.sort(key=lambda decision: decision.version.identity)
    return [
        f"{each.version.name} {'kept' if each.keeps else 'dropped'}: {each.why}"
        for each in decisions
    ]


def run(
    number: int, upto: int, strategy: CompactionStrategy, *, retains: bool = False
) -> RunRecord:
    """Returns a run that wrote the ledger 100 + number, based on the previous run's."""
    return RunRecord(
        number=number,
        state=RUN_STATE_SUCCESS,
        ledger_id=100 + number,
        previous_ledger_id=99 + number if number > 1 else -1,
        horizon=PositionRecord(ledger_id=1, entry_id=upto),
        strategy=strategy.name,
        strategy_settings=strategy.settings,
        plan_time_ms=NOW_MS,
        retain_null_key=retains,
    )


def facts(*runs: RunRecord, in_force: CompactionStrategy, **others: object) -> Facts:
    line = RunLine.of(runs, CompactedView(ledger_id=runs[-1].ledger_id))
    horizon = Position(1, runs[-1].horizon.entry_id)
    made = Facts(horizon=horizon, line=line, strategy=in_force, time_ms=NOW_MS, is_whole=True)
    return replace(made, **others)  # type: ignore[arg-type]


def test_event_time_explains_times_ties_and_tombstones() -> None:
    """Alone the later one wins a tie, in a batch the earlier; an old tombstone does nothing."""
    versions = [
        raw(1, event_ms=5_000),
        raw(2, event_ms=5_000),
        raw(3, event_ms=3_000),
        raw(4, event_ms=5_000, index=0),
        raw(5, 0, event_ms=4_000),
        raw(6, event_ms=7_000),
    ]
    assert told_by("event-time", versions) == [
        "1:1 dropped: superseded by 1:2, published later with the same event time",
        "1:2 dropped: superseded by 1:6, whose event time 1970-01-01T00:00:07.000Z is later",
        "1:3 dropped: older by event time than the current 1:2",
        "1:4:-1:0 dropped: in a batch, with the same event time as the current 1:2",
        "1:5 dropped: a tombstone older by event time than the current 1:2: ignored",
        "1:6 kept: latest by event time",
    ]


def test_event_time_restores_what_a_tombstone_had_removed() -> None:
    """An accepted tombstone leaves no event time."""
    versions = [raw(1, event_ms=5_000), raw(2, 0, event_ms=6_000), raw(3, event_ms=1_000)]
    assert told_by("event-time", versions) == [
        "1:1 dropped: deleted by 1:2, whose event time 1970-01-01T00:00:06.000Z is later",
        "1:2 dropped: a tombstone",
        "1:3 kept: older by event time than the tombstone 1:2, which was removed with its time;"
        " latest by event time since then",
    ]


def test_an_event_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    """Clients may set any."""
    versions = [raw(1), raw(2, event_ms=1 << 62)]
    assert f"whose event time {1 << 62} ms is later" in told_by("event-time", versions)[0]


def test_a_window_keeps_recent_messages() -> None:
    """By event time, or else by publish time; tombstones too; they supersede nothing."""
    old_ms, young_ms = NOW_MS - HOUR_MS, NOW_MS - HOUR_MS + 1
    versions = [
        raw(1, event_ms=old_ms),
        raw(2, event_ms=young_ms),
        raw(3, 0, event_ms=young_ms),
        raw(4),
    ]
    young = "younger than the lag of 1 h"
    assert told_by("event-time-window", versions, {"lag_ms": str(HOUR_MS)}) == [
        "1:1 kept: latest by event time",
        f"1:2 kept: {young}",
        f"1:3 kept: {young}",
        f"1:4 kept: {young}",
    ]


def test_keep_n_counts_since_the_last_tombstone() -> None:
    """And says how many more it takes."""
    versions = [raw(1), raw(2, 0), raw(3), raw(4), raw(5)]
    assert told_by("keep-n", versions, {"n": "2"}) == [
        "1:1 dropped: deleted by 1:2",
        "1:2 dropped: a tombstone",
        "1:3 dropped: not one of the last 2: 1:4 to 1:5 are newer",
        "1:4 kept: one of the last 2",
        "1:5 kept: one of the last 2",
    ]
    assert told_by("keep-n", [raw(1), raw(2)], {"n": "1"}) == [
        "1:1 dropped: not the last: 1:2 is newer",
        "1:2 kept: the last",
    ]


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (
            "newest",
            {},
            [
                "1:1 dropped: superseded by 1:2: it was published later",
                "1:2 dropped: superseded by 1:3: it was published later",
                "1:3 dropped: deleted by 1:4: it was published later",
                "1:4 dropped: a tombstone",
            ],
        ),
        (
            "numeric",
            {},
            [
                "1:1 dropped: superseded by 1:2: 10 is larger than 5",
                "1:2 dropped: deleted by 1:4: a tombstone always wins",
                "1:3 dropped: numeric keeps 1:2: 7 is not larger than 10",
                "1:4 dropped: a tombstone",
            ],
        ),
        (
            "keep-first",
            {},
            [
                "1:1 kept: chosen by keep-first",
                "1:2 dropped: keep-first keeps 1:1: it was published first",
                "1:3 dropped: keep-first keeps 1:1: it was published first",
                "1:4 dropped: keep-first keeps 1:1: it was published first",
            ],
        ),
        (
            "header-version",
            {"property": "v"},
            [
                "1:1 dropped: superseded by 1:2: v 10 is not lower than 5",
                "1:2 kept: chosen by header-version",
                "1:3 dropped: header-version keeps 1:2: v 7 is lower than 10",
                "1:4 dropped: header-version keeps 1:2: v is not a number, the current one is 10",
            ],
        ),
    ],
)
def test_ready_made_strategies_explain_themselves(
    name: str, settings: dict[str, str], expected: list[str]
) -> None:
    """Tests 5, 10, 7 and a tombstone."""
    versions = [raw(1), raw(2), raw(3), raw(4, 0)]
    values = {"1:1": b"5", "1:2": b"10", "1:3": b"7"}
    assert told_by(name, versions, settings, values) == expected


def test_user_defined_code_is_not_run() -> None:
    """Only observable facts are reported; it is unknown which earlier run dropped a message."""
    own = CompactionStrategy(name="shop:Best")
    runs = run(1, 3, own), run(2, 6, own)
    explained = explain([raw(1), both(2), raw(5), raw(8)], facts(*runs, in_force=own)).versions
    decides = "the code of 'shop:Best' decides"
    assert [each.what for each in explained] == [
        f"{decides}, dropped by run 2 or an earlier one",
        f"{decides}, kept by run 1",
        f"{decides}, dropped by run 2",
        "above the horizon 1:6",
    ]
    next_one = f"{decides}; only the next run shows its decision"
    assert [each.next for each in explained][1::2] == [next_one, next_one]


def test_messages_that_another_strategy_would_have_kept_are_named() -> None:
    """A later run cannot restore it; each run is explained by its strategy."""
    publishing = CompactionStrategy(name="publishing-order")
    history = [raw(1, event_ms=9_000), both(2, event_ms=1_000), raw(8, event_ms=500)]
    explained = explain(history, facts(run(1, 5, publishing), in_force=EVENT_TIME))
    first, second, third = explained.versions
    assert first.what == (
        "superseded by 1:2, dropped by run 1 under publishing-order; event-time would have kept it"
    )
    assert (first.is_missed, second.is_missed, first.strategy) == (True, False, "publishing-order")
    assert second.what == ("newest up to the horizon 1:5, kept by run 1 under publishing-order")
    assert third.next == ("the next run drops it: older by event time than the current 1:2")
    assert third.next_rule == pb.COMPACTION_RULE_EARLIER_EVENT


def test_runs_of_several_strategies_are_explained_one_after_another() -> None:
    """Each starts from the previous result."""
    numbers = CompactionStrategy(name="keep-n", settings={"n": "2"})
    history = [raw(1, event_ms=9_000), raw(2, event_ms=8_000), both(3, event_ms=8_500)]
    explained = explain(history, facts(run(1, 2, numbers), run(2, 5, EVENT_TIME), in_force=numbers))
    assert [each.what for each in explained.versions][1] == (
        "kept by run 1, older by event time than the current 1:1, dropped by run 2 under"
        " event-time; keep-n (n=2) would have kept it"
    )
    assert explained.versions[0].state == pb.VERSION_STATE_INCONSISTENT


@pytest.mark.parametrize("is_whole", [True, False])
def test_messages_kept_by_several_strategies_are_explained_by_the_last(is_whole: bool) -> None:
    """Run, strategy and rule belong to one run: the first that kept it under the reported
    strategy.
    """
    two = CompactionStrategy(name="keep-n", settings={"n": "2"})
    runs = run(1, 5, EVENT_TIME), run(2, 5, two), run(3, 5, two)
    history = [both(1, event_ms=9_000)]
    (told,) = explain(history, facts(*runs, in_force=two, is_whole=is_whole)).versions
    assert told.what == "one of the last 2 up to the horizon 1:5, kept by run 2 under keep-n (n=2)"
    assert (told.kept_by, told.strategy) == (pb.RunSpan(first=2, last=2), "keep-n")
    assert told.rule == pb.COMPACTION_RULE_LAST_N


def test_a_message_without_a_key_is_explained_by_its_runs_strategy() -> None:
    """Both keep it by the policy."""
    numbers = CompactionStrategy(name="keep-n", settings={"n": "2"})
    runs = run(1, 5, EVENT_TIME, retains=True), run(2, 5, numbers, retains=True)
    given = facts(*runs, in_force=numbers, has_key=False, retain_null_key=True)
    (told,) = explain([both(1)], given).versions
    assert told.what == "null key, retain_null_key=true, kept by run 2 under keep-n (n=2)"


def test_no_reason_is_given_if_one_of_several_strategies_dropped_it() -> None:
    """Trimmed entries may have made run 1 keep it, and then run 2 dropped it."""
    publishing = CompactionStrategy(name="publishing-order")
    runs = run(1, 5, EVENT_TIME), run(2, 5, publishing)
    numbers = CompactionStrategy(name="keep-n", settings={"n": "2"})
    (told, _) = explain([raw(3), both(4)], facts(*runs, in_force=numbers, is_whole=False)).versions
    assert told.what == (
        "dropped by run 2 or an earlier one under event-time or publishing-order;"
        " reason no longer known; keep-n (n=2) would have kept it"
    )
    assert (told.strategy, told.dropped_by) == ("", pb.RunSpan(first=1, last=2))
    assert (told.rule, told.HasField("by")) == (pb.COMPACTION_RULE_UNSPECIFIED, False)


def test_a_message_without_a_key_has_the_reason_common_to_all_runs() -> None:
    """Run 2's horizon lies before run 1's, so a later one may have met it once more."""
    runs = run(1, 5, CompactionStrategy(name="publishing-order")), run(2, 3, EVENT_TIME)
    (told,) = explain([raw(4)], facts(*runs, in_force=EVENT_TIME, has_key=False)).versions
    assert told.what == (
        "null key, retain_null_key=false, dropped by run 2 or an earlier one"
        " under publishing-order or event-time"
    )
    assert (told.strategy, told.rule) == ("", pb.COMPACTION_RULE_NULL_KEY)


def test_a_message_without_a_key_has_no_reason_if_runs_differ() -> None:
    """The policy or a strategy that keeps none dropped it: unknown which."""
    runs = run(1, 5, EVENT_TIME), run(2, 3, CompactionStrategy(name="numeric"))
    (told,) = explain([raw(4)], facts(*runs, in_force=EVENT_TIME, has_key=False)).versions
    by = "dropped by run 2 or an earlier one under event-time or numeric"
    assert (told.what, told.rule) == (f"null key, {by}", pb.COMPACTION_RULE_UNSPECIFIED)


def test_young_latest_messages_are_explained_by_the_run_that_met_them() -> None:
    """The first run kept it for another reason."""
    window = CompactionStrategy(name="event-time-window", settings={"lag_ms": str(HOUR_MS)})
    runs = [run(number, 5, window) for number in (1, 2, 3)]
    runs[0].plan_time_ms -= HOUR_MS
    history = [both(1, event_ms=NOW_MS - HOUR_MS)]
    (told,) = explain(history, facts(*runs, in_force=window)).versions
    assert told.what == "latest by event time up to the horizon 1:5, kept by run 2"
    assert (told.kept_by.first, told.rule) == (2, pb.COMPACTION_RULE_LATEST_EVENT)


def test_trimmed_messages_may_have_influenced_a_run() -> None:
    """Then the compacted ledger is believed, and nothing is called damage."""
    runs = run(1, 3, EVENT_TIME), run(2, 6, EVENT_TIME)
    history = [raw(2, event_ms=5_000), raw(5, event_ms=6_000), raw(8, event_ms=1_000)]
    explained = explain(history, facts(*runs, in_force=EVENT_TIME, is_whole=False))
    assert [each.what for each in explained.versions] == [
        "superseded by 1:5, whose event time 1970-01-01T00:00:06.000Z is later,"
        " dropped by run 2 or an earlier one",
        "dropped by run 2; reason no longer known",
        "above the horizon 1:6",
    ]


def test_message_strategies_keep_no_null_key() -> None:
    """Tests any policy."""
    numeric = CompactionStrategy(name="numeric")
    given = facts(
        run(1, 5, numeric, retains=True), in_force=numeric, has_key=False, retain_null_key=True
    )
    (dropped, coming) = explain([raw(1), raw(8)], given).versions
    assert dropped.what == "null key, which numeric never keeps, dropped by run 1"
    assert coming.next == "the next run drops it: null key, which numeric never keeps"
