"""The interface of strategies: the registry, the law of folding, and a strategy for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job import scan as scan_module
from ledgerfold.compactor.job.key_columns import KeyColumns
from ledgerfold.compactor.job.plan import cut
from ledgerfold.compactor.job.segment_map import SegmentMap
from ledgerfold.compactor.strategies.registry import MAKERS, fixed, strategy_of
from ledgerfold.compactor.strategies.strategy import Strategy, by_key
from ledgerfold.storage.errors import Corruption, UnknownStrategy
from ledgerfold.strategies.catalogue import DEFAULT, LISTED
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.entry_pb2 import NativeKeys
from tests.model.strategy_model import Message
from tests.support.compaction import LOGS, Batch, LogBuilder, Stored, read_messages
from tests.support.local_run import run_tasks
from tests.support.property_tests import examples
from tests.support.strategies import FIRST, columns_of, fold

LogShape = list[list[list[Message]]]
SETTINGS: dict[str, dict[str, str]] = {
    "keep-n": {"n": "2"},
    "event-time-window": {"lag_ms": "2"},
}
COLUMNS = ("publishing-order", "event-time", "keep-n", "event-time-window")
MADE = [
    strategy_of(CompactionPlan(strategy=name, strategy_settings=SETTINGS.get(name), time_ms=5))
    for name in COLUMNS
]
ALL = [*(made for made in MADE if isinstance(made, Strategy)), FIRST]
# Strategies with an exact count of removed events for every cut of the log (event_time.py explains
# the others).
COUNTS_EXACTLY = ("publishing-order", "keep-n", "first")
KEYED = st.builds(
    Message,
    st.sampled_from([b"a", b"b", b"c", b"d"]),
    st.sampled_from([b"", b"1"]),
    st.integers(0, 5),
    st.booleans(),
    st.integers(1, 5),
)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MAKERS, FIRST.name, fixed(FIRST))
        yield


def test_every_strategy_of_a_broker_exists() -> None:
    """Under that name, in that version."""
    assert DEFAULT in LISTED
    assert {name: MAKERS[name].version for name in LISTED} == {
        name: each.version for name, each in LISTED.items()
    }


@pytest.mark.parametrize(("name", "version"), [("oldest", 0), ("oldest", 1), ("first", 2), ("", 0)])
def test_an_unknown_strategy_is_refused(name: str, version: int, tmp_path: Path) -> None:
    """The error lists those that are, before anything of the plan is carried out. Its advice fits
    the cause, a wrong name or a wrong build: no test had read the advice.
    """
    plan = LogBuilder(tmp_path).plan(100, strategy=name)
    plan.strategy_version = version
    with pytest.raises(
        UnknownStrategy, match=r"'publishing-order' version 1, .*'first' version 3"
    ) as raised:
        cut(plan, 2)
    assert raised.value.known["first"] == 3
    assert repr(name) in raised.value.message
    assert ("the broker's version" in raised.value.message) == (version > 0)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(
    messages=st.lists(KEYED, min_size=1, max_size=30),
    cuts=st.sets(st.integers(0, 30)),
    seed=st.integers(0, 99),
)
def test_folding_does_not_depend_on_chunking(
    strategy: Strategy, messages: list[Message], cuts: set[int], seed: int
) -> None:
    """In any order of the parts: the same survivors; the same count, if the strategy claims it."""
    whole, parts = fold(strategy, messages), fold(strategy, messages, cuts, seed)
    assert parts[0] == whole[0]
    if strategy.name in COUNTS_EXACTLY:
        assert parts == whole


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(messages=st.lists(KEYED, min_size=1, max_size=30))
def test_folding_does_not_depend_on_sorting(strategy: Strategy, messages: list[Message]) -> None:
    """Messages in the order of keys, or in a simpler strategy, give the same result."""
    keys, facts = columns_of(messages)
    found, codes = np.unique(keys, return_inverse=True)
    begun = strategy.begin(codes, facts, len(found))
    ordered = facts._replace(ordered=by_key(codes))
    for each in (strategy, strategy.simpler(facts) or strategy):
        again = each.begin(codes, ordered, len(found))
        assert again.removed_events == begun.removed_events
        survivors = [sorted(strategy.survivors(of.fragments).tolist()) for of in (again, begun)]
        assert survivors[0] == survivors[1]


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(
    messages=st.lists(KEYED, min_size=1, max_size=30), bounds=st.tuples(*[st.integers(0, 30)] * 2)
)
def test_each_chunk_keeps_what_the_whole_log_keeps(
    strategy: Strategy, messages: list[Message], bounds: tuple[int, int]
) -> None:
    """A forecast counts what survives chunks of its size, and nothing else."""
    start, end = sorted(bounds)
    keys, facts = columns_of(messages)
    stretch = np.arange(len(messages))[start:end]
    if len(stretch):
        whole, _ = fold(strategy, messages)
        found, codes = np.unique(keys[stretch], return_inverse=True)
        begun = strategy.begin(codes, facts.where(stretch), len(found))
        stays = set(strategy.survivors(begun.fragments).tolist())
        assert stays.issuperset(set(whole) & set(stretch.tolist()))


def _first(messages: Sequence[Stored]) -> list[Stored]:
    """The oracle: the first value of each key."""
    kept: dict[bytes, Stored] = {}
    for message in messages:
        if message.key is not None and message.value:
            kept.setdefault(message.key, message)
    return sorted(kept.values())


@settings(max_examples=examples(30))
@given(shape=LOGS, chunk_rows=st.integers(1, 12))
def test_a_run_uses_the_strategy_of_its_plan(shape: LogShape, chunk_rows: int) -> None:
    """Scan, merge and copy know none of them."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "CHUNK_ROWS_MAX", chunk_rows)
        log = _log(LogBuilder(Path(folder)), shape)
        records, counts = run_tasks(log.plan(100, strategy=FIRST.name))
        left = read_messages(log.ledgers_dir, records)
        assert left == _first(log.messages)
        assert counts.removed_events == len(log.messages) - len(left)


@settings(max_examples=examples(30))
@given(LOGS, LOGS)
def test_a_second_run_continues_from_the_first(first: LogShape, second: LogShape) -> None:
    """The survivors of the first run come first."""
    with tempfile.TemporaryDirectory() as folder:
        log = _log(LogBuilder(Path(folder)), first)
        plan = log.plan(100, strategy=FIRST.name)
        previous = Manifest(segments=run_tasks(plan)[0], horizon=plan.horizon)
        _log(log, second, first_ledger=50)
        records, _ = run_tasks(log.plan(101, previous=previous, strategy=FIRST.name))
        assert read_messages(log.ledgers_dir, records) == _first(log.messages)


def test_a_wrong_number_of_event_times_is_damage(tmp_path: Path) -> None:
    """As any other column that does not fit."""
    log = _log(LogBuilder(tmp_path), [[[Message(b"k", b"1")]]])
    segment = cut(log.plan(100), 2).scans[0][0]
    keys = NativeKeys(
        key_offsets=bytes([0, 0, 0, 0, 1, 0, 0, 0]),
        keys=b"k",
        flags=b"\1",
        value_sizes=bytes(4),
        event_times=bytes(16),
    )
    for reads_event_times in (False, True):
        columns = KeyColumns(reads_event_times)
        with SegmentMap(segment) as mapped, pytest.MonkeyPatch.context() as patch:
            patch.setattr(mapped, "key_section", lambda _: keys.SerializeToString())
            columns.add(mapped, next(mapped.entries()))
        with pytest.raises(Corruption) if reads_event_times else nullcontext():
            columns.check()


def _log(log: LogBuilder, shape: Sequence[Sequence[Batch]], first_ledger: int = 1) -> LogBuilder:
    for ledger_id, batches in enumerate(shape, first_ledger):
        log.add_segment(ledger_id, batches)
    return log
