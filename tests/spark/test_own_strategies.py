"""Runs strategies from an installed package in the real worker, which contains their failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CancelRequest,
    CheckStrategyRequest,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
    RunRequest,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy, MessageId
from ledgerfold.v1.what_if_pb2 import TopicWhatIf
from tests.model.strategy_model import Message
from tests.support.compaction import LogBuilder, Stored, read_messages
from tests.support.compactor_process import CompactorProcess, reason_of
from tests.support.outside_package import SOURCE, OutsidePackage
from tests.support.processes import command
from tests.support.waiting import RUN_S, wait_until

MEMORY_BYTES = 200 * 1024 * 1024
TIMEOUT_SECONDS = 2
# Besides `longest` and `first`, which are entry points, and their classes.
_NAMES = (
    "Raises",
    "RaisesUnlike",
    "Answers",
    "Hangs",
    "Eats",
    "Exits",
    "Stubborn",
    "Early",
    "Slow",
    "Nothing",
)
ALLOWED = tuple(f"--allow-strategy=outside:{name}" for name in _NAMES)
A1, A22, A3, A44, B1 = (
    Message(key, value)
    for key, value in [(b"a", b"1"), (b"a", b"22"), (b"a", b"3"), (b"a", b"44"), (b"b", b"1")]
)
HARM = Message(b"a", b"harm")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> OutsidePackage:
    package = OutsidePackage(tmp_path_factory.mktemp("site-packages"))
    package.write()
    return package


@pytest.fixture(scope="module")
def own_worker(
    tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, package: OutsidePackage
) -> Iterator[CompactorProcess]:
    """Yields a warm worker with low limits."""
    with CompactorProcess(
        tmp_path_factory.mktemp("worker"),
        cache_dir,
        package.environment,
        (
            *("--strategy-timeout", str(TIMEOUT_SECONDS)),
            *("--strategy-memory", str(MEMORY_BYTES)),
            *ALLOWED,
        ),
    ) as worker:
        worker.wait_until_serving()
        yield worker


def _log(folder: Path, *messages: Message) -> LogBuilder:
    log = LogBuilder(folder)
    log.add_segment(1, [[message] for message in messages])
    return log


def _left(
    worker: CompactorProcess,
    log: LogBuilder,
    strategy: str,
    ledger_id: int = 100,
    settings: Mapping[str, str] | None = None,
) -> tuple[list[bytes], str]:
    """Returns the values that a run leaves, and the version that it names."""
    plan = log.plan(ledger_id, strategy=strategy)
    plan.strategy_settings.update(settings or {})
    _, manifest = worker.run(plan)
    stored: list[Stored] = read_messages(log.ledgers_dir, manifest.segments)
    return [each.value for each in stored], manifest.strategy_version


def _refused(
    worker: CompactorProcess,
    log: LogBuilder,
    strategy: str,
    settings: Mapping[str, str] | None = None,
) -> Any:
    with pytest.raises(grpc.RpcError) as raised:
        _left(worker, log, strategy, 100, settings)
    assert not (log.ledgers_dir / "100").exists()
    return raised.value


@pytest.mark.parametrize(
    ("strategy", "settings", "kept"),
    [
        ("outside:Longest", {}, b"44"),
        ("longest", {"even": "yes"}, b"22"),
        ("first", {}, b"1"),
        ("outside:FIRST", {}, b"1"),
    ],
)
def test_a_strategy_from_a_package_runs(
    own_worker: CompactorProcess,
    tmp_path: Path,
    strategy: str,
    settings: dict[str, str],
    kept: bytes,
) -> None:
    """Names an entry point or its class, with settings, of either kind."""
    log = _log(tmp_path, A1, A22, B1, A3, A44)
    values, version = _left(own_worker, log, strategy, 100, settings)
    assert sorted(values) == sorted([kept, b"1"])
    assert version == ("3" if "first" in strategy.lower() else "2.5")


def test_unknown_settings_are_rejected(own_worker: CompactorProcess, tmp_path: Path) -> None:
    """The error is Python's, in a sentence that names the strategy."""
    error = _refused(own_worker, _log(tmp_path, A1), "longest", {"width": "3"})
    assert reason_of(error) == "INVALID_STRATEGY"
    assert "'longest' cannot be used: it cannot be created with settings width" in error.details()


def test_the_memory_limit_counts_only_allocated_memory(
    tmp_path: Path, cache_dir: Path, package: OutsidePackage
) -> None:
    """A run on fresh Python processes fits the default limit: nothing reserves it at once."""
    log = _log(tmp_path, A1, A22, B1)
    with CompactorProcess(tmp_path, cache_dir, package.environment, ALLOWED) as worker:
        worker.wait_until_serving()
        assert sorted(_left(worker, log, "outside:Longest")[0]) == [b"1", b"22"]


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("Raises", r"'nothing of the kind', at message 1:2:-1:0"),
        ("RaisesUnlike", r"Unlike: any other, at message 1:2:-1:0"),
        ("Answers", r"should_keep_left returned 1, which is not a bool, at message 1:2:-1:0"),
        ("Hangs", r"it did not answer within 2 s, at message 1:2:-1:0"),
        ("Eats", r"a task with it takes more than 200 MiB of memory, at message 1:2:-1:0"),
        ("Exits", r"strategy 'outside:Exits': the process of its task ended"),
        pytest.param(
            "Stubborn",
            r"strategy 'outside:Stubborn': the process of its task ended",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_harmful_strategy_fails_only_its_run(
    own_worker: CompactorProcess, tmp_path: Path, strategy: str, sentence: str
) -> None:
    """The error names the strategy, nothing of the run is left, and the worker takes the
    next run.
    """
    log = _log(tmp_path, A1, B1, HARM)
    error = _refused(own_worker, log, f"outside:{strategy}")
    assert f"outside:{strategy}" in error.details()
    assert sentence in error.details()
    assert reason_of(error) == "STRATEGY_FAILED"
    assert own_worker.is_serving
    assert _left(own_worker, log, "publishing-order") == ([b"1", b"harm"], "1")
    assert _left(own_worker, log, "outside:Longest", 101)[0] == [b"1", b"harm"]


def test_a_strategy_that_fails_its_samples_is_refused(
    own_worker: CompactorProcess, tmp_path: Path
) -> None:
    """Both the check and a run refuse it."""
    asked = CheckStrategyRequest(strategy=CompactionStrategy(name="outside:Early"))
    with pytest.raises(grpc.RpcError) as raised:
        own_worker.stub.CheckStrategy(asked)
    error: Any = raised.value
    sentence = "it returned 'maybe', which is neither True nor False, asked about a value"
    assert reason_of(error) == "INVALID_STRATEGY"
    assert sentence in error.details()
    assert sentence in _refused(own_worker, _log(tmp_path, A1), "outside:Early").details()


def test_a_plan_with_a_disallowed_name_is_refused(
    own_worker: CompactorProcess, tmp_path: Path
) -> None:
    """A callable that is no strategy is rejected without a call."""
    told, log = tmp_path / "told", _log(tmp_path, A1)
    harm = {"command": f"touch {told}"}
    error = _refused(own_worker, log, "os:system", harm)
    assert reason_of(error) == "STRATEGY_NOT_ALLOWED"
    assert "start this worker with --allow-strategy os:system" in error.details()
    asked = CompactionStrategy(name="os:system", settings=harm)
    with pytest.raises(grpc.RpcError) as raised:
        own_worker.stub.CheckStrategy(CheckStrategyRequest(strategy=asked))
    assert reason_of(raised.value) == "STRATEGY_NOT_ALLOWED"
    request = AnalyzeRequest(plan=log.plan(100), strategies=[asked])
    (forecast,) = own_worker.stub.Analyze(request).found.forecasts
    assert "this worker does not allow it" in forecast.not_forecast
    assert not told.exists()


def test_a_check_returns_the_description_of_a_strategy(own_worker: CompactorProcess) -> None:
    """It returns name, version of the code and kind, without Spark."""
    for name, version, kind in [
        ("longest", "2.5", "strategic"),
        ("outside:Hangs", "harmful 1", "strategic"),
        ("first", "3", "columns"),
    ]:
        asked = CheckStrategyRequest(strategy=CompactionStrategy(name=name))
        found = own_worker.stub.CheckStrategy(asked)
        assert (found.name, found.version, found.kind) == (name, version, kind)


def test_replaced_code_is_reloaded(
    own_worker: CompactorProcess, package: OutsidePackage, tmp_path: Path
) -> None:
    """Python processes with the old code are not used again, and the record names the new
    version.
    """
    log = _log(tmp_path, A1, A22, A3)
    assert _left(own_worker, log, "longest") == ([b"22"], "2.5")
    package.write(SOURCE.replace("return len(previous.value) > len(current.value)", "return False"))
    try:
        assert _left(own_worker, log, "longest", 101) == ([b"3"], "2.5")
        package.write(version="2.6")
        assert _left(own_worker, log, "longest", 102) == ([b"22"], "2.6")
    finally:
        package.write()


def test_other_strategies_run_without_the_users_code(
    own_worker: CompactorProcess, tmp_path: Path
) -> None:
    """It is loaded in separate Python processes with a separate daemon."""
    log = _log(tmp_path, A1)
    _left(own_worker, log, "publishing-order")
    _left(own_worker, log, "longest", 101)
    daemons = [
        pid for pid in own_worker.children() if "ledgerfold.compactor.daemon" in command(pid)
    ]
    assert len(daemons) >= 2


def _asked(worker: CompactorProcess, log: LogBuilder, *names: str) -> TopicWhatIf:
    strategies = [CompactionStrategy(name=name) for name in names]
    request = AnalyzeRequest(plan=log.plan(100), strategies=strategies, differences_max=9)
    found: TopicWhatIf = worker.stub.Analyze(request).found
    assert [each.strategy.name for each in found.forecasts] == list(names)
    return found


def test_what_if_predicts_runs_of_user_strategies(
    own_worker: CompactorProcess, tmp_path: Path
) -> None:
    """Tests both kinds; their keys differ from the others' if they keep other messages."""
    log = _log(tmp_path, A1, A22, B1, A3)
    found = _asked(own_worker, log, "longest", "newest", "first")
    for at, each in enumerate(found.forecasts):
        manifest = own_worker.run(log.plan(101 + at, strategy=each.strategy.name))[1]
        counts = manifest.counts
        assert (each.messages, each.keys) == (counts.messages_out, counts.keys)
        assert each.bytes == counts.bytes_out
        assert each.removed_events == counts.removed_events
    assert found.differences.keys == 1
    (differing,) = found.differences.listed
    assert (differing.key, [each.value for each in differing.kept]) == (b"a", [b"22", b"3", b"1"])


def test_a_failing_strategy_does_not_affect_the_rest_of_a_what_if(
    own_worker: CompactorProcess, tmp_path: Path
) -> None:
    """Tests errors within a run's limits and before the first call; the worker keeps serving."""
    wrong = {
        "outside:Hangs": "it did not answer within 2 s, at message 1:1:-1:0",
        "outside:Exits": "the process of its task ended",
        "outside:Early": "it returned 'maybe'",
    }
    found = _asked(own_worker, _log(tmp_path, A1, HARM), "newest", *wrong)
    told = {each.strategy.name: each for each in found.forecasts}
    for name, why in wrong.items():
        assert f"trategy '{name}'" in told[name].not_forecast
        assert why in told[name].not_forecast
    assert told["newest"].messages == 1
    # There is no reference to compare with.
    assert not found.HasField("differences")
    assert own_worker.is_serving


def _told(worker: CompactorProcess, strategy: str, *values: bytes) -> DescribeDecisionsResponse:
    request = DescribeDecisionsRequest(strategy=CompactionStrategy(name=strategy))
    for entry_id, value in enumerate(values):
        at = MessageId(ledger_id=1, entry_id=entry_id, batch_index=-1)
        request.messages.add(key=b"a", value=value, id=at)
    told: DescribeDecisionsResponse = worker.stub.DescribeDecisions(request)
    return told


def test_explanations_are_requested_in_log_order(own_worker: CompactorProcess) -> None:
    """Compares each message with its predecessor; after a tombstone there is none."""
    told = _told(own_worker, "longest", b"22", b"3", b"444", b"", b"1", b"22")
    assert [(each.left, each.right, each.words) for each in told.choices] == [
        (0, 1, "1 came, 2 stood"),
        (0, 2, "3 came, 2 stood"),
        (2, 3, "0 came, 3 stood"),
        (4, 5, "2 came, 1 stood"),
    ]
    assert not told.why
    assert not _told(own_worker, "first", b"1", b"2").choices


@pytest.mark.parametrize(
    ("strategy", "values", "words", "why"),
    [
        ("Raises", (b"1", b"2"), "raised KeyError: 'nothing of the kind'", ""),
        ("Answers", (b"1", b"2"), "returned int, not a string", ""),
        ("Raises", (b"1", b"harm"), "", "'nothing of the kind', at message 1:1"),
        ("Hangs", (b"1", b"2"), "", "it did not answer within 2 s"),
        ("Eats", (b"1", b"2"), "", "a task with it takes more than 200 MiB of memory"),
        ("Exits", (b"1", b"2"), "", "the process that tried it ended (exit code 3)"),
        ("RaisesUnlike", (b"1", b"2"), "", "Unlike: any other"),
        ("Nothing", (b"1", b"2"), "", "module outside has no Nothing"),
    ],
)
def test_harmful_explanations_are_reported_and_do_nothing_else(
    own_worker: CompactorProcess, strategy: str, values: tuple[bytes, ...], words: str, why: str
) -> None:
    """An answer arrives whatever the code does, and the worker keeps serving."""
    told = _told(own_worker, f"outside:{strategy}", *values)
    assert words in "".join(each.words for each in told.choices)
    assert why in told.why
    assert bool(told.why) == bool(why)
    assert own_worker.is_serving


def test_a_run_is_cancelled_during_the_trial_of_its_strategy(
    own_worker: CompactorProcess, tmp_path: Path
) -> None:
    """The run has not begun and ends at once; so does the process of the trial."""
    log = _log(tmp_path, A1)
    plan = log.plan(100, strategy="outside:Slow")
    call = own_worker.stub.Run(RunRequest(plan=plan), timeout=RUN_S)
    cancel = CancelRequest(run_id=plan.run_id)
    wait_until(lambda: own_worker.stub.Cancel(cancel).found, "the trial")
    with pytest.raises(grpc.RpcError) as raised:
        next(call)
    error: Any = raised.value
    assert reason_of(error) == "COMPACTION_CANCELLED"
    assert not [pid for pid in own_worker.children() if "trial_process" in command(pid)]
