"""The seam of strategies: the registry, the law of folding, and strategies of the tests' own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor import scan as scan_module
from ledgerfold.compactor.key_columns import KeyColumns
from ledgerfold.compactor.plan import cut
from ledgerfold.compactor.segment_map import SegmentMap
from ledgerfold.compactor.strategies.registry import MAKERS, fixed, strategy_of
from ledgerfold.compactor.strategies.strategy import Facts, Folded, FragmentColumns, Strategy
from ledgerfold.storage.errors import Corruption, UnknownStrategy
from ledgerfold.strategies.catalogue import DEFAULT, LISTED
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.entry_pb2 import NativeKeys
from tests.model.strategy_model import Message
from tests.support.compaction import LOGS, Batch, LogBuilder, Stored, read_messages
from tests.support.local_run import run_tasks
from tests.support.strategies import FIRST, NEWEST_EVENT

LogShape = list[list[list[Message]]]
SETTINGS: dict[str, dict[str, str]] = {"header-version": {"property": "v"}}
MADE = [
    strategy_of(CompactionPlan(strategy=name, strategy_settings=SETTINGS.get(name)))
    for name in MAKERS
]
# Those over columns.
ALL = [*(made for made in MADE if isinstance(made, Strategy)), FIRST, NEWEST_EVENT]
# (key 0..3, whether a value, event time, whether published alone)
HISTORIES = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=30,
)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for strategy in (FIRST, NEWEST_EVENT):
            patch.setitem(MAKERS, strategy.name, fixed(strategy))
        yield


def test_what_a_broker_may_ask_for_there_is() -> None:
    """Under that name, in that version."""
    assert DEFAULT in LISTED
    assert {name: MAKERS[name].version for name in LISTED} == {
        name: each.version for name, each in LISTED.items()
    }


@pytest.mark.parametrize(("name", "version"), [("oldest", 0), ("oldest", 1), ("first", 2), ("", 0)])
def test_one_that_is_not_known_is_refused(name: str, version: int, tmp_path: Path) -> None:
    """The error lists those that are, before anything of the plan is carried out."""
    plan = LogBuilder(tmp_path).plan(100, strategy=name)
    plan.strategy_version = version
    with pytest.raises(
        UnknownStrategy, match=r"'publishing-order' version 1, .*'first' version 3"
    ) as raised:
        cut(plan, 2)
    assert raised.value.known["first"] == 3
    assert repr(name) in raised.value.message


def _joined(
    strategy: Strategy, keys: np.ndarray, columns: FragmentColumns
) -> tuple[np.ndarray, Folded]:
    """The key of each fragment, and the fragments."""
    found, codes = np.unique(keys, return_inverse=True)
    return _named(found, strategy.join(codes, columns, len(found)))


def _begun(strategy: Strategy, keys: np.ndarray, facts: Facts) -> tuple[np.ndarray, Folded]:
    found, codes = np.unique(keys, return_inverse=True)
    return _named(found, strategy.begin(codes, facts, len(found)))


def _named(found: np.ndarray, folded: Folded) -> tuple[np.ndarray, Folded]:
    return (found if folded.codes is None else found[folded.codes]), folded


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(history=HISTORIES, cuts=st.sets(st.integers(0, 30)), random=st.randoms())
def test_however_the_log_is_cut(
    strategy: Strategy,
    history: list[tuple[int, bool, int, bool]],
    cuts: set[int],
    random: st.DataObject,
) -> None:
    """And whichever part comes first: the same survivors and count."""
    keys, is_value, times, is_alone = map(np.array, zip(*history, strict=True))
    facts = Facts(
        np.arange(len(history), dtype=np.int64),
        is_value.astype(bool),
        times.astype(np.int64),
        is_alone.astype(bool),
    )
    _, whole = _begun(strategy, keys, facts)
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < len(history)), len(history)]
    parts = []
    for start, end in pairwise(bounds):
        stretch = facts.where(np.arange(start, end))
        parts.append(_begun(strategy, keys[start:end], stretch))
    random.shuffle(parts)  # type: ignore[attr-defined]
    columns = zip(*(folded.fragments for _, folded in parts), strict=True)
    _, joined = _joined(
        strategy,
        np.concatenate([found for found, _ in parts]),
        tuple(map(np.concatenate, columns)),
    )
    assert sorted(strategy.survivors(joined.fragments)) == sorted(
        strategy.survivors(whole.fragments)
    )
    removed_events = joined.removed_events + sum(folded.removed_events for _, folded in parts)
    assert removed_events == whole.removed_events


def _first(messages: Sequence[Stored]) -> list[Stored]:
    """The oracle: the first value of each key."""
    kept: dict[bytes, Stored] = {}
    for message in messages:
        if message.key is not None and message.value:
            kept.setdefault(message.key, message)
    return sorted(kept.values())


def _newest_event(messages: Sequence[Stored]) -> list[Stored]:
    """The oracle, as Pulsar asks: is what stands to be kept?"""
    standing: dict[bytes, Stored] = {}
    for message in messages:
        if message.key is None:
            continue
        before = standing.get(message.key)
        if before is None or not _event_time_ms(before) > _event_time_ms(message):
            standing[message.key] = message
    return sorted(message for message in standing.values() if message.value)


def _event_time_ms(message: Message | Stored) -> int:
    """Of the values that LOGS has: between two of them a tombstone, and one without a time."""
    return {b"1": 3, b"": 2, b"two": 1}.get(message.value, 0)


@pytest.mark.parametrize(
    ("strategy", "oracle"),
    [(FIRST, _first), (NEWEST_EVENT, _newest_event)],
    ids=lambda each: getattr(each, "name", None),
)
@given(shape=LOGS, chunk_rows=st.integers(1, 12))
def test_a_run_takes_the_strategy_that_its_plan_names(
    strategy: Strategy,
    oracle: Callable[[Sequence[Stored]], list[Stored]],
    shape: LogShape,
    chunk_rows: int,
) -> None:
    """Scan, merge and copy know none of them; fragments of one column or two."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "CHUNK_ROWS_MAX", chunk_rows)
        log = _log(LogBuilder(Path(folder), _event_time_ms), shape)
        records, counts = run_tasks(log.plan(100, strategy=strategy.name))
        left = read_messages(log.ledgers_dir, records)
        assert left == oracle(log.messages)
        assert counts.removed_events == len(log.messages) - len(left)


@given(LOGS, LOGS)
def test_a_second_run_of_it_goes_on_from_the_first(first: LogShape, second: LogShape) -> None:
    """What the first kept still comes first."""
    with tempfile.TemporaryDirectory() as folder:
        log = _log(LogBuilder(Path(folder)), first)
        plan = log.plan(100, strategy=FIRST.name)
        previous = Manifest(segments=run_tasks(plan)[0], horizon=plan.horizon)
        _log(log, second, first_ledger=50)
        records, _ = run_tasks(log.plan(101, previous=previous, strategy=FIRST.name))
        assert read_messages(log.ledgers_dir, records) == _first(log.messages)


def test_event_times_that_are_not_one_for_each_message_are_damage(tmp_path: Path) -> None:
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
