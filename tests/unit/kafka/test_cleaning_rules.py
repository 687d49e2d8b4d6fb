"""Range, choice and deletion: the catalogue's cases, and plans of the real cleaner."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.kafka.cleaner.choice import Candidate, Verdict, choose
from ledgerfold.broker.kafka.config.config import LogConfig
from ledgerfold.kafka.cleanable import Limit, LogView, Plan, plan
from ledgerfold.kafka.retention import Deletable, Reason, deletable
from ledgerfold.kafka.segment import Segment

HOUR_MS = 3_600_000
T0_MS = 1_700_000_000_000


def segments(*bases: int, end: int, size: int = 100, time_ms: int = T0_MS) -> list[Segment]:
    """Closed ones, and an active one with a batch."""
    ends = [*bases[1:], end]
    return [
        Segment(
            number,
            base,
            behind,
            size if behind > base else 0,
            first_batch_timestamp_ms=time_ms,
            max_timestamp_ms=time_ms,
            modified_ms=time_ms,
        )
        for number, (base, behind) in enumerate(zip(bases, ends, strict=True))
    ]


EIGHT = segments(0, 10, 20, 30, 40, 50, 60, 70, end=75)


def planned(
    log: list[Segment],
    checkpoint: int | None = 0,
    *,
    stable: int | None = None,
    start: int = 0,
    now_ms: int = T0_MS,
    **settings: str,
) -> Plan:
    end = log[-1].next_offset
    view = LogView(log, start, end, end if stable is None else stable)
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return plan(view, checkpoint, LogConfig.of(names | {"cleanup.policy": "compact"}), now_ms)


def test_t01_active_segment_is_the_upper_end() -> None:
    found = planned(EIGHT)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 70)
    assert found.limit is Limit.ACTIVE_SEGMENT


def test_t02_high_watermark_bounds_the_range() -> None:
    found = planned(EIGHT, stable=50)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 50)


def test_a_segment_that_contains_the_upper_bound_is_excluded() -> None:
    found = planned(EIGHT, stable=55)
    assert (found.first_uncleanable_offset, found.bound, found.cleanable_bytes) == (55, 50, 500)
    assert found.limit is Limit.LAST_STABLE_OFFSET


def test_t04_minimum_lag_two_blocks() -> None:
    old = segments(0, 10, 20, 30, end=40)
    log = [*old, *segments(40, 50, 60, 70, end=75, time_ms=T0_MS + HOUR_MS + 1)]
    found = planned(log, min_compaction_lag_ms=str(HOUR_MS), now_ms=T0_MS + HOUR_MS + 1)
    assert (found.first_uncleanable_offset, found.limit) == (40, Limit.MIN_COMPACTION_LAG)


def test_t05_minimum_lag_inside_the_active_segment() -> None:
    found = planned(EIGHT, min_compaction_lag_ms=str(HOUR_MS), now_ms=T0_MS + HOUR_MS + 1)
    assert found.first_uncleanable_offset == 70


@pytest.mark.parametrize(("age_ms", "expected"), [(HOUR_MS - 1, 0), (HOUR_MS, 70)])
def test_exactly_the_minimum_lag_is_old_enough(age_ms: int, expected: int) -> None:
    found = planned(EIGHT, min_compaction_lag_ms=str(HOUR_MS), now_ms=T0_MS + age_ms)
    assert found.first_uncleanable_offset == expected


def test_one_recent_segment_excludes_all_later_ones() -> None:
    log = [*EIGHT]
    log[3] = replace(log[3], max_timestamp_ms=T0_MS + 5)
    found = planned(log, min_compaction_lag_ms="5", now_ms=T0_MS + 5)
    assert found.first_uncleanable_offset == 30


def test_the_files_time_counts_when_no_record_has_one() -> None:
    log = [replace(each, max_timestamp_ms=-1) for each in EIGHT]
    log[2] = replace(log[2], modified_ms=T0_MS + 5)
    found = planned(log, min_compaction_lag_ms="5", now_ms=T0_MS + 5)
    assert found.first_uncleanable_offset == 20


def test_t08_undecided_transactions() -> None:
    lag = {"min_compaction_lag_ms": str(HOUR_MS), "now_ms": T0_MS + HOUR_MS + 1}
    log = segments(0, 3, end=3)
    assert planned(log, stable=0, **lag).first_uncleanable_offset == 0  # type: ignore[arg-type]
    aborted = [*log[:1], *segments(3, 4, end=4, time_ms=T0_MS + HOUR_MS + 1)]
    assert planned(aborted, **lag).first_uncleanable_offset == 3  # type: ignore[arg-type]
    lag["now_ms"] = T0_MS + 2 * HOUR_MS + 2
    assert planned(aborted, **lag).first_uncleanable_offset == 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checkpoint", "expected"), [(0, (10, True)), (15, (15, False)), (10, (10, False))]
)
def test_t09_checkpoint_below_the_log_start(checkpoint: int, expected: tuple[int, bool]) -> None:
    found = planned(EIGHT, checkpoint, start=10)
    assert (found.first_dirty_offset, found.must_repair) == expected


def test_t10_checkpoint_beyond_the_log_end() -> None:
    found = planned(EIGHT, 200)
    assert (found.first_dirty_offset, found.must_repair) == (0, True)
    assert not planned(EIGHT, 75).must_repair
    assert planned(EIGHT, None, start=3).first_dirty_offset == 3


def test_t13_checkpoint_inside_the_active_segment() -> None:
    """The segment is then in the clean part."""
    found = planned(segments(0, end=6), 3)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (100, 0, 0.0)
    assert choose({"t-0": Candidate(found, min_ratio=0.0)}).log is None


def test_t14_byte_accounting() -> None:
    found = planned(segments(0, 10, 20, 30, 40, 50, end=55), 20, stable=40)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (200, 200, 0.5)
    everything = planned(segments(0, 10, 20, end=25), 20)
    assert (everything.clean_bytes, everything.cleanable_bytes) == (200, 0)


def test_a_partly_clean_segment_counts_in_both_sums() -> None:
    found = planned(segments(0, 10, end=11), 5)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (100, 100, 0.5)


def test_example_20_2_the_ratio_must_be_exceeded() -> None:
    mb = 1024 * 1024
    verdicts = [
        Candidate(
            Plan(0, 9, 9, 300 * mb, size * mb, 0, False, Limit.ACTIVE_SEGMENT), min_ratio=0.5
        ).verdict
        for size in (200, 300, 301)
    ]
    assert verdicts == [Verdict.CLEAN_ENOUGH, Verdict.CLEAN_ENOUGH, Verdict.DIRTY]


def candidates() -> dict[str, Candidate]:
    """Three logs of one-record segments, clean up to offset 20."""
    return {
        f"log-{count}": Candidate(
            planned(segments(*range(count + 1), end=count + 1), 20), min_ratio=0.05
        )
        for count in (22, 25, 30)
    }


def test_t17_dirtiest_log_first() -> None:
    choice = choose(candidates())
    assert (choice.log, choice.max_dirty_percent) == ("log-30", 33)


def test_t18_busy_logs_are_no_candidates() -> None:
    without = {name: each for name, each in candidates().items() if name != "log-30"}
    assert choose(without).log == "log-25"
    assert choose({}).log is None
    assert choose({}).max_dirty_ratio == 0


def test_t19_maximum_lag() -> None:
    settings = {"min_cleanable_dirty_ratio": "1.0", "max_compaction_lag_ms": str(6 * HOUR_MS)}
    later = T0_MS + 6 * HOUR_MS
    log = segments(0, 10, 20, end=25)
    for now_ms, delay_ms in [(T0_MS + 3 * HOUR_MS, 0), (later, 0), (later + 1, 1)]:
        found = planned(log, **settings, now_ms=now_ms)  # type: ignore[arg-type]
        assert found.delay_ms == delay_ms
        assert found.is_eligible(1.0) == (delay_ms > 0)
    choice = choose({"t-0": Candidate(found, 1.0)})
    assert (choice.log, choice.verdicts["t-0"], choice.max_delay_ms) == ("t-0", Verdict.OVERDUE, 1)


def test_a_log_may_be_overdue_with_nothing_to_clean() -> None:
    log = segments(0, 10, 20, end=25)
    found = planned(log, 0, stable=0, now_ms=T0_MS + 9, max_compaction_lag_ms="1")
    assert found.is_overdue
    assert Candidate(found, 0.5).verdict is Verdict.EMPTY
    half = planned(log, 10, stable=0, now_ms=T0_MS + 9, max_compaction_lag_ms="1")
    assert Candidate(half, 0.5).verdict is Verdict.NOTHING_CLEANABLE


def test_overdue_logs_have_no_priority() -> None:
    overdue = Plan(0, 9, 9, 90, 10, 7, False, Limit.ACTIVE_SEGMENT)
    dirty = Plan(0, 9, 9, 10, 90, 0, False, Limit.ACTIVE_SEGMENT)
    both = {"a-0": Candidate(overdue, 0.5), "b-0": Candidate(dirty, 0.5)}
    assert choose(both).log == "b-0"


def test_unknown_dates_are_omitted() -> None:
    log = [
        replace(each, first_batch_timestamp_ms=time)
        for each, time in zip(EIGHT, [-1, 0] * 4, strict=True)
    ]
    assert planned(log, max_compaction_lag_ms="1", now_ms=T0_MS * 2).delay_ms == 0


@given(
    st.integers(0, 80),
    st.integers(0, 75),
    st.integers(0, 40),
    st.lists(st.integers(0, 9), min_size=8, max_size=8),
)
def test_a_plan_is_a_valid_range(checkpoint: int, stable: int, start: int, ages: list[int]) -> None:
    """A range inside the log, that begins below its end or is empty, and never the active one's."""
    log = [
        replace(each, max_timestamp_ms=T0_MS - age) for each, age in zip(EIGHT, ages, strict=True)
    ]
    found = planned(log, checkpoint, stable=stable, start=start, min_compaction_lag_ms="3")
    assert start <= found.first_dirty_offset <= 75
    assert found.first_dirty_offset <= found.first_uncleanable_offset
    assert found.bound <= min(70, max(found.first_uncleanable_offset, 0))
    assert found.bound in {each.base_offset for each in log}
    assert found.is_eligible(0.0) == (found.cleanable_bytes > 0)
    assert (found.ratio is None) == (not found.clean_bytes and not found.cleanable_bytes)


# Deletion


def gone(
    log: list[Segment],
    policy: str,
    *,
    start: int = 0,
    mark: int | None = None,
    now_ms: int = T0_MS,
    **settings: str,
) -> Deletable:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    config = LogConfig.of(names | {"cleanup.policy": policy})
    end = log[-1].next_offset
    return deletable(
        log, config, log_start=start, high_watermark=end if mark is None else mark, now_ms=now_ms
    )


@pytest.mark.parametrize(
    ("policy", "stay"),
    [("compact", 3), ("compact,delete", 1), ("delete, compact", 1), ("delete", 1), ("", 3)],
)
def test_t92_policies_and_deletion(policy: str, stay: int) -> None:
    """15 old records, 5 per segment: where all go, a new empty segment follows."""
    old = segments(0, 5, 10, end=15)
    found = gone(old, policy, now_ms=T0_MS + 10**10)
    assert len(old) - found.count + found.must_roll == stay
    assert found.log_start == (0 if stay == 3 else 15)


def test_the_age_must_exceed_the_limit() -> None:
    log = segments(0, 5, 10, end=15)
    assert gone(log, "delete", retention_ms="10", now_ms=T0_MS + 10).count == 0
    assert gone(log, "delete", retention_ms="10", now_ms=T0_MS + 11).count == 3
    assert gone(log, "delete", retention_ms="-1", now_ms=T0_MS * 2).count == 0


def test_a_recent_segment_keeps_all_later_ones() -> None:
    log = segments(0, 5, 10, end=15)
    log[1] = replace(log[1], max_timestamp_ms=T0_MS + 5)
    found = gone(log, "delete", retention_ms="1", now_ms=T0_MS + 5)
    assert (found.reasons, found.log_start) == ((Reason.AGE,), 5)


@pytest.mark.parametrize(
    ("limit", "count"), [("-7", 0), ("300", 0), ("201", 0), ("200", 1), ("100", 2), ("0", 3)]
)
def test_retention_by_size(limit: str, count: int) -> None:
    found = gone(segments(0, 5, 10, end=15), "delete", retention_bytes=limit)
    assert found.reasons == (Reason.SIZE,) * count


def test_no_segment_above_the_high_watermark_is_deleted() -> None:
    log = segments(0, 5, 10, end=15)
    assert gone(log, "delete", mark=9, retention_bytes="0").count == 1
    assert gone(log, "compact", start=10, mark=10).reasons == (Reason.LOG_START,) * 2


def test_a_segment_that_contains_the_log_start_is_kept() -> None:
    log = segments(0, 5, 10, end=15)
    found = gone(log, "compact", start=9)
    assert (found.count, found.log_start) == (1, 9)


def test_an_empty_last_segment_is_kept() -> None:
    log = segments(0, 5, end=5)
    found = gone(log, "delete", retention_ms="0", now_ms=T0_MS + 1)
    assert (found.count, found.log_start, found.must_roll) == (1, 5, False)


def test_retention_applies_log_start_then_size_then_age() -> None:
    log = segments(0, 5, 10, 15, end=20)
    log[3] = replace(log[3], max_timestamp_ms=T0_MS + 9)
    found = gone(log, "delete", start=5, now_ms=T0_MS + 9, retention_bytes="200", retention_ms="1")
    assert found.reasons == (Reason.LOG_START, Reason.SIZE, Reason.AGE)
    assert found.log_start == 15
