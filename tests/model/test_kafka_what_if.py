"""`what-if` of a Kafka topic predicts what the product then does, to the byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.kafka_foretelling import BEGAN_MS, Foretelling, Step
from tests.support.property_tests import examples

FIGURES = (
    "rounds",
    "bytes_read",
    "bytes_rewritten",
    "space_peak_bytes",
    "space_end_bytes",
    "segments_end",
    "records_end",
    "tombstones_end",
)
BACKOFF = {"log.cleaner.backoff.ms": "1000"}


@pytest.fixture(scope="module")
def foretelling() -> Iterator[Foretelling]:
    found = Foretelling()
    yield found
    found.close()


keys = st.sampled_from([b"a", b"b", b"c", b"d", b"a longer key"])
values = st.one_of(st.none(), st.binary(max_size=40), st.just(b"v" * 90))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=4).map(tuple)


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Generates histories of plain, idempotent and transactional producers."""
    steps: list[Step] = []
    is_open: set[int] = set()
    for number in range(draw(st.integers(3, 24))):
        after_ms = draw(st.sampled_from([0, 1, 400, 1000, 7000])) if number else 0
        who = draw(st.sampled_from([0, 0, 0, 1, 2, 11, 12]))
        if who in is_open and draw(st.booleans()):
            steps.append(Step(after_ms, producer_id=who, commits=draw(st.booleans())))
            is_open.discard(who)
            continue
        if who > 10:
            is_open.add(who)
        later_ms = draw(st.sampled_from([0, 0, 0, 700, None]))
        steps.append(Step(after_ms, draw(pairs), who, later_ms=later_ms))
    return steps


@st.composite
def trials(draw: st.DrawFn) -> dict[str, str]:
    trial = {
        "internal.segment.bytes": draw(st.sampled_from(["500", "800", "2000"])),
        "min.cleanable.dirty.ratio": draw(st.sampled_from(["0", "0.3", "0.7"])),
        "delete.retention.ms": draw(st.sampled_from(["0", "2000", "86400000", str(2**63 - 1)])),
    }
    for name, choices in (
        ("min.compaction.lag.ms", ["500", "3000"]),
        ("max.compaction.lag.ms", ["3000", "9000"]),
        ("segment.ms", ["1", "1500"]),
        ("index.interval.bytes", ["0", "200"]),
        ("segment.index.bytes", ["48", "100"]),
        ("log.cleaner.io.buffer.load.factor", ["0.00001", "0.0000005"]),
        ("producer.id.expiration.ms", ["1000"]),
    ):
        if draw(st.integers(0, 3)) == 0:
            trial[name] = draw(st.sampled_from(choices))
    if draw(st.integers(0, 1)) == 0:
        trial["cleanup.policy"] = "compact,delete"
        trial["retention.ms"] = draw(st.sampled_from(["-1", "4000", "20000"]))
        trial["retention.bytes"] = draw(st.sampled_from(["-1", "600", "2000"]))
    return trial


def check(foretelling: Foretelling, steps: Sequence[Step], trial: Mapping[str, str]) -> None:
    trial = {**BACKOFF, **trial}
    (told,) = foretelling.foretold(steps, [trial]).cleanings
    lived = foretelling.lived(steps, trial, told.end_ms + 3000)
    for name in FIGURES:
        assert getattr(told, name) == getattr(lived, name), name
    if told.end_ms > told.begin_ms:
        assert told.space_mean_bytes == pytest.approx(lived.mean_bytes(told.end_ms))


def test_segments_left_by_retention_may_be_dirty_enough(foretelling: Foretelling) -> None:
    """It deleted clean segments: the next pass cleans the rest, although nothing is new."""

    def step(after_ms: int, key: bytes, records: int) -> Step:
        return Step(after_ms, tuple((b"%b%d" % (key, at), b"v" * 90) for at in range(records)))

    trial = {
        "cleanup.policy": "compact,delete",
        "internal.segment.bytes": "500",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "3000",
        "retention.ms": "-1",
        "retention.bytes": "600",
    }
    check(foretelling, [step(0, b"c", 2), step(7000, b"c", 2), step(7000, b"b", 3)], trial)


@given(steps=histories(), trial=trials())
@settings(max_examples=examples(50))
def test_the_product_does_what_was_predicted(
    foretelling: Foretelling, steps: list[Step], trial: dict[str, str]
) -> None:
    check(foretelling, steps, trial)


BATCH = tuple((b"k%d" % number, b"a value that is long " * 3) for number in range(4))


@pytest.mark.parametrize("compression", [1, 3, 4])
def test_compressed_batches_are_estimated(foretelling: Foretelling, compression: int) -> None:
    """Cleanings and records are exact; the bytes of unchanged batches are exact, those of others
    approximate.
    """
    steps = [Step(400, BATCH[number % 2 :], compression=compression) for number in range(20)]
    trial = {**BACKOFF, "internal.segment.bytes": "600", "min.cleanable.dirty.ratio": "0.1"}
    (told,) = foretelling.foretold(steps, [trial]).cleanings
    lived = foretelling.lived(steps, trial, told.end_ms + 3000)
    assert (told.rounds, told.records_end) == (lived.rounds, lived.records_end)
    assert 0 < told.bytes_estimated <= told.bytes_rewritten
    assert told.bytes_rewritten == pytest.approx(lived.bytes_rewritten, rel=0.25)


def test_a_cleaned_log_is_forecast_exactly(foretelling: Foretelling) -> None:
    """A cleaned log is complete for the forecast: superseded records take no time and no space."""
    steps = [Step(400, BATCH[number % 3 :]) for number in range(20)]
    trial = {**BACKOFF, "internal.segment.bytes": "600", "min.cleanable.dirty.ratio": "0"}
    (told,) = foretelling.foretold(steps, [trial]).cleanings
    foretelling.lived(steps, trial, told.end_ms + 3000)
    again = foretelling.told([trial])
    assert again.input.messages == again.cleanings[0].records_end == told.records_end
    assert again.cleanings[0].space_end_bytes == told.space_end_bytes


def test_the_record_count_includes_markers_before_and_after(foretelling: Foretelling) -> None:
    """So a log without changes has the same number at the end."""
    steps = [Step(400, BATCH, producer_id=11), Step(400, producer_id=11, commits=True)]
    foretelling.lived(steps, BACKOFF, BEGAN_MS + 3000)
    told = foretelling.told([BACKOFF])
    assert (told.cleanings[0].rounds, told.cleanings[0].records_end) == (0, 5)
    assert (told.input.messages, told.input.null_keys) == (5, 0)


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        ({}, "the cleanable range ends at the active segment"),
        (
            {"internal.segment.bytes": "600", "min.cleanable.dirty.ratio": "1"},
            "the dirty ratio was 1 at most; a cleaning needs more than 1",
        ),
    ],
)
def test_a_forecast_without_a_cleaning_states_the_reason(
    foretelling: Foretelling, trial: dict[str, str], why: str
) -> None:
    """A forecast without a cleaning gives the reason."""
    steps = [Step(400, BATCH[number % 3 :]) for number in range(8)]
    told, rounds = foretelling.foretold(
        steps, [{**BACKOFF, **trial}, {**BACKOFF, "internal.segment.bytes": "600"}]
    ).cleanings
    assert (told.rounds, rounds.why_no_round) == (0, "")
    assert why in told.why_no_round


def test_tasks_and_trials_run_side_by_side(foretelling: Foretelling) -> None:
    """One trial's cleanings do not affect another's."""
    steps = [Step(400, BATCH[number % 3 :]) for number in range(20)]
    sizes = [{**BACKOFF, "internal.segment.bytes": each} for each in ("500", "900", "500")]
    told = foretelling.foretold(steps, sizes).cleanings
    assert told[0] == told[2] != told[1]
    assert told[0] == foretelling.foretold(steps, sizes[:1]).cleanings[0]
    assert [point.bytes for point in told[0].points][-1] == told[0].space_end_bytes


def test_a_log_without_records_is_forecast(foretelling: Foretelling) -> None:
    (told,) = foretelling.foretold([], [BACKOFF]).cleanings
    assert (told.rounds, told.segments_end, told.space_peak_bytes) == (0, 1, 0)
    assert told.why_no_round == "the log is empty"
    assert not told.points or told.points[0].bytes == 0
