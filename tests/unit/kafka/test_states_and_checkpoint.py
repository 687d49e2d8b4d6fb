"""Cleaning states and the checkpoint's file, cell by cell and text by text as in Kafka 4.1.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.kafka.cleaner.states import Aborted, InProgress, Paused, State, States
from ledgerfold.broker.kafka.log.checkpoint_file import (
    TopicPartition,
    checkpoint_text,
    read_checkpoint,
    truncated,
)
from ledgerfold.storage.errors import Corruption

LOG = "t-0"
PATH = "cleaner-offset-checkpoint"
T, U = TopicPartition("t", 0), TopicPartition("u", 3)


def states_in(state: State | None) -> States:
    """Returns a log in the state, by the operations that lead there."""
    states = States()
    match state:
        case InProgress():
            assert states.begin(LOG)
        case Aborted():
            assert states.begin(LOG)
            assert not states.abort_and_pause(LOG)
        case Paused(holds):
            for _ in range(holds):
                assert states.abort_and_pause(LOG)
    assert states.of(LOG) == state
    return states


@pytest.mark.parametrize(
    ("state", "call", "expected"),
    [
        (None, "begin", InProgress()),
        (None, "abort_and_pause", Paused(1)),
        (InProgress(), "begin", InProgress()),
        (InProgress(), "abort_and_pause", Aborted()),
        (InProgress(), "end", None),
        (Aborted(), "begin", Aborted()),
        (Aborted(), "end", Paused(1)),
        (Paused(1), "begin", Paused(1)),
        (Paused(1), "abort_and_pause", Paused(2)),
        (Paused(1), "resume", None),
        (Paused(3), "resume", Paused(2)),
    ],
)
def test_t89_valid_state_transitions(
    state: State | None, call: str, expected: State | None
) -> None:
    states = states_in(state)
    getattr(states, call)(LOG)
    assert states.of(LOG) == expected


@pytest.mark.parametrize(
    ("state", "call", "why"),
    [
        (None, "resume", "Compaction for partition t-0 cannot be resumed since it is not paused."),
        (None, "end", "State for partition t-0 should exist."),
        (InProgress(), "resume", "cannot be resumed since it is in LogCleaningInProgress state."),
        (Aborted(), "abort_and_pause", "aborted and paused since it is in LogCleaningAborted"),
        (Aborted(), "resume", "cannot be resumed since it is in LogCleaningAborted state."),
        (
            Paused(3),
            "end",
            "In-progress partition t-0 cannot be in LogCleaningPaused{pausedCount=3} state.",
        ),
    ],
)
def test_t89_invalid_state_transitions(state: State | None, call: str, why: str) -> None:
    states = states_in(state)
    with pytest.raises(RuntimeError) as caught:
        getattr(states, call)(LOG)
    assert why in str(caught.value)
    assert states.of(LOG) == state


def test_only_an_uninterrupted_cleaning_writes_the_checkpoint() -> None:
    assert states_in(InProgress()).end(LOG)
    aborted = states_in(Aborted())
    assert aborted.is_aborted(LOG)
    assert not aborted.end(LOG)


def test_t91_retention_takes_idle_logs() -> None:
    states = states_in(InProgress())
    assert states.pause_free([LOG, "u-0"]) == ["u-0"]
    assert not states.begin("u-0")
    states.resume("u-0")
    assert states.is_free("u-0")


def test_states_of_deleted_logs_are_removed() -> None:
    states = States()
    states.mark_uncleanable("t-0", "DATA_CORRUPT", "damaged")
    states.mark_uncleanable("u-0", "DATA_CORRUPT", "damaged, too")
    states.forget("t-0")
    assert states.uncleanable == {"u-0": ("DATA_CORRUPT", "damaged, too")}
    assert states.is_uncleanable("u-0")


@given(st.lists(st.sampled_from(["begin", "abort_and_pause", "resume", "end"])))
def test_a_log_has_one_state_at_a_time(calls: list[str]) -> None:
    """A hold excludes a cleaning, and holds are counted."""
    states, holds, running = States(), 0, False
    for call in calls:
        before = states.of(LOG)
        try:
            done = getattr(states, call)(LOG)
        except RuntimeError:
            assert states.of(LOG) == before
            continue
        if call == "begin":
            assert done == (before is None)
            running = running or bool(done)
        elif call == "abort_and_pause":
            holds += 1
        elif call == "resume":
            holds -= 1
        else:
            running = False
        assert running == isinstance(states.of(LOG), InProgress | Aborted)
        found = states.of(LOG)
        assert holds == (found.holds if isinstance(found, Paused) else isinstance(found, Aborted))


def test_t86_the_text_of_the_checkpoint_file() -> None:
    assert checkpoint_text({TopicPartition("orders", 0): 1734, U: 88}) == (
        "0\n2\norders 0 1734\nu 3 88\n"
    )
    assert checkpoint_text({}) == "0\n0\n"


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", None),
        ("0\n", None),
        ("0\n0\n", None),
        ("0\n1\nt 0 5\n", 5),
        ("0\n1\nt 0 5", 5),
        ("0\n1\nt  0 5\n", 5),
        ("0\n1\nt\t0\t5\n", 5),
        ("0\r\n1\r\nt 0 5\r\n", 5),
        ("0\n1\nt 0 -5\n", -5),
        ("0\n1\nt 0 +5\n", 5),
        ("0\n2\nt 0 5\nt 0 6\n", 6),
    ],
)
def test_checkpoint_files_that_kafka_reads(text: str, offset: int | None) -> None:
    assert read_checkpoint(text, PATH) == ({} if offset is None else {T: offset})


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "x\n0\n",
        " 0\n0\n",
        "0\nx\n",
        "0\n-1\n",
        "0\n2\nt 0 5\n",
        "0\n1\nt 0 5\nu 0 6\n",
        "0\n1\nt 0\n",
        "0\n1\nt 0 5 6\n",
        "0\n1\n t 0 5\n",
        "0\n1\n\n",
        "0\n0\n\n",
        "0\n1\nt x 5\n",
        "0\n1\nt 0 x\n",
        "0\n1\nt 0 99999999999999999999\n",
    ],
)
def test_checkpoint_files_that_are_damaged(text: str) -> None:
    with pytest.raises(Corruption, match=PATH):
        read_checkpoint(text, PATH)


@given(
    st.dictionaries(
        st.builds(
            TopicPartition,
            st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True),
            st.integers(0, 2**31 - 1),
        ),
        st.integers(-1, 2**63 - 1),
    )
)
def test_a_written_checkpoint_is_read(offsets: dict[TopicPartition, int]) -> None:
    assert read_checkpoint(checkpoint_text(offsets), PATH) == offsets


def test_t88_truncation_lowers_the_checkpoint() -> None:
    assert (truncated(999, 1000), truncated(999, 1)) == (999, 1)
