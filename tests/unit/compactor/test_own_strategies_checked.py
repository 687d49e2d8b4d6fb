"""Tests user-defined strategies without Spark: loading, bounds, calls, and checks."""

from __future__ import annotations

import asyncio
import faulthandler
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgerfold.compactor.strategies.registry import strategy_of
from ledgerfold.compactor.strategies.strategy import Facts, Folded, Strategy
from ledgerfold.compactor.strategies.watch import DEFAULT_LIMITS, Exceeded, Limits, Watch
from ledgerfold.compactor.user_strategies.own import COLUMNS, STRATEGIC, Own, kind_of
from ledgerfold.compactor.user_strategies.samples import ask_columns, ask_strategic, questions
from ledgerfold.compactor.user_strategies.sandbox import Trials
from ledgerfold.compactor.user_strategies.sandbox_process import run_trial
from ledgerfold.storage.errors import InvalidStrategy, StrategyFailed, StrategyNotAllowed
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.strategies.loading import is_own, load, place_of
from ledgerfold.strategies.ready_made import HeaderVersion, KeepFirst, Newest, Numeric
from ledgerfold.strategies.strategic import READS
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from tests.support.outside_package import OutsidePackage
from tests.support.strategies import FIRST

SHORT = Limits(timeout_seconds=0.05)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OutsidePackage]:
    """On this process's path, and forgotten afterwards."""
    package = OutsidePackage(tmp_path)
    package.write()
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    sys.modules.pop("outside", None)


# Loading


def test_a_name_is_an_entry_point_or_a_module_path(package: OutsidePackage) -> None:
    """Only the installed packages can decide on a plain name."""
    assert is_own("longest")
    assert is_own("anything:Here")
    assert not is_own("shortest")
    assert place_of("longest") == ("longest", "outside", "Longest", "2.5")
    with pytest.raises(InvalidStrategy, match=r"\(it has: first, longest\)") as raised:
        place_of("shortest")
    assert raised.value.strategy == "shortest"


def test_a_name_in_two_packages_is_refused(package: OutsidePackage) -> None:
    """Neither is used; the error names both."""
    info = package.folder / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ledgerfold.strategies]\nlongest = other:Longest\n")
    with pytest.raises(InvalidStrategy, match=r"several .*: other:Longest, outside:Longest"):
        place_of("longest")


@pytest.mark.parametrize(
    ("name", "version"),
    [("outside:Raises", "harmful 1"), ("outside:FIRST", "3"), ("outside:Longest", "2.5")],
)
def test_the_first_stated_version_counts(package: OutsidePackage, name: str, version: str) -> None:
    """The class, the strategy, the distribution."""
    assert load(name, {}).version == version


def test_without_a_stated_version_a_hash_of_the_source_is_used(package: OutsidePackage) -> None:
    """It changes with the code."""
    asked = "def should_keep_left(self, a, b): return False"
    (package.folder / "lonely.py").write_text(f"class A:\n    {asked}")
    first = load("lonely:A", {})
    assert first.version == f"source {first.source}"
    (package.folder / "lonely.py").write_text(f"class A:\n    {asked}\n    new = True")
    sys.modules.pop("lonely")
    assert load("lonely:A", {}).version != first.version
    sys.modules.pop("lonely")


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("nowhere:A", {}, r"module nowhere cannot be imported \(ModuleNotFoundError: No module"),
        ("outside:Gone.Deeper", {}, r"module outside has no Gone.Deeper"),
        ("outside:Longest", {"n": "3"}, r"cannot be created with settings n \(TypeError: "),
        ("outside:FIRST", {"n": "3"}, r"it has no settings, but n is set"),
        ("ends:A", {}, r"module ends cannot be imported \(SystemExit: 3\)"),
    ],
)
def test_strategies_that_cannot_be_loaded(
    package: OutsidePackage, name: str, settings: dict[str, str], why: str
) -> None:
    """The error names the strategy, whatever its code raises."""
    (package.folder / "ends.py").write_text("raise SystemExit(3)")
    with pytest.raises(InvalidStrategy, match=f"^Strategy '{name}' cannot be used: .*{why}"):
        load(name, settings)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("called:Plain", "class Plain has no method should_keep_left"),
        (
            "called:call",
            "call is neither a class with should_keep_left nor a function",
        ),
        ("called:MADE.made", "it has no settings, but command is set"),
        ("os:system", "it has no settings, but command is set"),
        ("subprocess:Popen", "class Popen has no method should_keep_left"),
    ],
)
def test_objects_that_are_not_strategies_are_not_called(
    package: OutsidePackage, name: str, why: str
) -> None:
    """A callable that is no strategy is rejected without a call."""
    (package.folder / "called.py").write_text(
        "def call(command=None): raise AssertionError\n"
        "class Plain:\n    def __init__(self, command): call()\n"
        "    made = classmethod(lambda cls, command: call())\n"
        "MADE = Plain\n"
    )
    settings = {"command": "exit 1"}
    assert why in run_trial(name, settings, DEFAULT_LIMITS)["why"]
    sys.modules.pop("called", None)


def test_a_factory_of_a_column_strategy_is_recognized(package: OutsidePackage) -> None:
    """It is recognized by its annotation, which may be a string."""
    for name, head in (("early", ""), ("late", "from __future__ import annotations\n")):
        (package.folder / f"{name}.py").write_text(
            f"{head}from ledgerfold.compactor.strategies.strategy import Strategy\n"
            "from tests.support.strategies import FIRST\n"
            "def made(n: str) -> Strategy:\n    return FIRST\n"
        )
        found = run_trial(f"{name}:made", {"n": "1"}, DEFAULT_LIMITS)
        assert (found["kind"], found["version"]) == (COLUMNS, "3")
        sys.modules.pop(name)


@pytest.mark.process
@pytest.mark.parametrize("allowed", [(), ("os:system",)])
def test_a_trial_does_not_run_a_command(tmp_path: Path, allowed: tuple[str, ...]) -> None:
    """It is not run, even if it is allowed, because it is no strategy."""
    told = tmp_path / "told"
    trials = Trials(DEFAULT_LIMITS, AllowedStrategies(allowed, "this worker"))
    with pytest.raises(InvalidStrategy) as raised:
        asyncio.run(trials.of("os:system", {"command": f"touch {told}"}))
    assert isinstance(raised.value, StrategyNotAllowed) == (not allowed)
    assert not told.exists()


# Bounds


def _forever() -> None:
    while True:
        pass


def _in_vain() -> None:
    """Catches every exception."""
    while True:
        try:
            _forever()
        except Exception:
            continue


@pytest.mark.parametrize("work", [_forever, _in_vain])
def test_a_call_has_a_time_limit(work: Callable[[], None]) -> None:
    """Python code is interrupted, though it catches every Exception."""
    watch = Watch(SHORT)
    with watch.held():
        with watch.asking("one"):
            pass
        with pytest.raises(Exceeded, match=r"did not answer within 0\.05 s"), watch.asking("two"):
            work()
    assert watch.last == "two"


def test_time_between_calls_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the total of many answered calls; the timer runs only within a call."""
    armed: list[float] = []
    monkeypatch.setattr(
        faulthandler, "dump_traceback_later", lambda seconds, **_: armed.append(seconds)
    )
    watch = Watch(DEFAULT_LIMITS)
    with watch.held():
        look: Any = signal.getsignal(signal.SIGALRM)
        for _ in range(10):
            look(signal.SIGALRM, None)
        for _ in range(10):
            with watch.asking("quick"):
                look(signal.SIGALRM, None)
        put_off = len(armed)
        with watch.asking("slow"):
            # It is new at the first look.
            for _ in range(4):
                look(signal.SIGALRM, None)
            with pytest.raises(Exceeded):
                look(signal.SIGALRM, None)
    assert len(armed) == put_off + 1
    assert min(armed) > DEFAULT_LIMITS.timeout_seconds


def test_a_check_for_which_no_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot start its thread: code that takes memory slowly is still going when it looks."""

    def arm(seconds: float, **_: object) -> None:
        raise RuntimeError("unable to start watchdog thread")

    watch = Watch(DEFAULT_LIMITS)
    with watch.held():
        look: Any = signal.getsignal(signal.SIGALRM)
        with monkeypatch.context() as full:
            full.setattr(faulthandler, "dump_traceback_later", arm)
            for _ in range(2):
                with pytest.raises(Exceeded, match="more than 1024 MiB"), watch.asking("one"):
                    look(signal.SIGALRM, None)
        with watch.asking("two"):
            look(signal.SIGALRM, None)


def test_memory_is_limited_and_the_limit_is_reset_afterwards() -> None:
    """Handler and limit are those of before, also where tasks lie within each other."""
    before = (signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_DATA))
    watch = Watch(Limits(memory_bytes=64 * 1024 * 1024))
    with watch.held():
        with pytest.raises(Exceeded, match="more than 64 MiB"), watch.held():
            np.ones(1 << 28)
        assert resource.getrlimit(resource.RLIMIT_DATA) != before[1]
        assert signal.getsignal(signal.SIGALRM) == watch._check
    after = (signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_DATA))
    assert after == before


def test_calls_in_another_thread_are_not_interrupted() -> None:
    """Signals are the main thread's: there it just runs."""
    done = []

    def work() -> None:
        with Watch(SHORT).held():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


# Samples


@pytest.mark.parametrize("made", [Newest(), KeepFirst(), Numeric(), HeaderVersion("v")])
def test_ready_made_strategies_pass_their_samples(made: Any) -> None:
    """Each is loaded as a user's strategy; a sample has only the fields that it reads."""
    assert ask_strategic("theirs", made, Watch(DEFAULT_LIMITS)) == made.reads
    for _, _, current in questions(made.reads):
        assert {part for part in READS if hasattr(current, part)} == set(made.reads)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("publishing-order", {}), ("event-time", {}), ("keep-n", {"n": "2"})],
)
def test_column_strategies_pass_their_samples(name: str, settings: dict[str, str]) -> None:
    """With event times where they are read, and with several fragments of a key."""
    strategy = strategy_of(CompactionPlan(strategy=name, strategy_settings=settings))
    assert isinstance(strategy, Strategy)
    assert kind_of(strategy) == COLUMNS
    ask_columns(strategy.name, strategy, Watch(DEFAULT_LIMITS))


def _counted(codes: Any, facts: Facts, key_count: int) -> Folded:
    """Breaks the law: it counts its arguments."""
    folded = FIRST.begin(codes, facts, key_count)
    return folded._replace(removed_events=len(codes) ** 2)


@pytest.mark.parametrize(
    ("functions", "why"),
    [
        ({"begin": _counted}, "yield another result if the log is split"),
        ({"begin": lambda *_: 7}, "it is a int, not a Folded, in its answer to begin"),
        ({"begin": lambda *_: Folded((), 0)}, "its fragments are not arrays"),
        ({"begin": lambda *_: Folded((np.zeros(99, int),), 0)}, "do not have 3 rows each"),
        ({"begin": lambda *_: Folded((np.zeros(3, int),), -1)}, "-1 is not a number of removed"),
        (
            {"begin": lambda *_: Folded((np.zeros(1, int),), 0, np.array([7]))},
            "its codes are not those of 3 keys",
        ),
        ({"join": lambda *_: 1 // 0}, "ZeroDivisionError"),
        ({"survivors": lambda _: np.array([1, 1])}, "not an array of distinct positions"),
        ({"survivors": lambda _: [1]}, "not an array of distinct positions"),
        ({"survivors": lambda _: np.array([99])}, "positions that no message has"),
    ],
)
def test_faulty_column_strategies_fail_their_samples(functions: dict[str, Any], why: str) -> None:
    """Samples detect columns that would fail runs, or change their result."""
    parts = {"begin": FIRST.begin, "join": FIRST.join, "survivors": FIRST.survivors} | functions
    wrong = Strategy("wrong", 1, parts["begin"], parts["join"], parts["survivors"])
    with pytest.raises(StrategyFailed, match=f"strategy 'wrong': .*{why}"):
        ask_columns("wrong", wrong, Watch(DEFAULT_LIMITS))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("outside:Early", "it returned 'maybe', which is neither True nor False, asked about a v"),
        ("outside:RaisesUnlikeEarly", "Unlike: any other, asked about a value after nothing"),
        ("outside:os", "module has no method should_keep_left, and is not a column Strategy"),
        ("unread:C", "it is 'value', and must be a tuple of names"),
        ("unread:D", "its `version` is a property, not a string or number"),
        ("unread:E", "KeyboardInterrupt, asked about a value after nothing"),
        ("unread:A", "no weight, in `reads`"),
        ("unread:B", "AttributeError: the class does not list 'value'"),
    ],
)
def test_a_failed_trial_states_the_reason(package: OutsidePackage, name: str, why: str) -> None:
    """A rejection states the reason."""
    (package.folder / "unread.py").write_text(
        "class A:\n    reads = ('weight',)\n    def should_keep_left(self, a, b): return True\n"
        "class B:\n    reads = ()\n    def should_keep_left(self, a, b): return b.value == b''\n"
        "class C(A): reads = 'value'\n"
        "class D(A): version = property(lambda self: 1)\n"
        "class E:\n    def should_keep_left(self, a, b): raise KeyboardInterrupt\n"
    )
    assert why in run_trial(name, {}, DEFAULT_LIMITS)["why"]
    sys.modules.pop("unread", None)


def test_the_result_of_a_successful_trial(package: OutsidePackage) -> None:
    """All that a run needs to know without loading it."""
    found = run_trial("longest", {"even": "yes"}, DEFAULT_LIMITS)
    assert {**found, "source": ""} == {
        "version": "2.5",
        "source": "",
        "kind": STRATEGIC,
        "reads": ("value",),
    }
    assert run_trial("first", {}, DEFAULT_LIMITS)["reads_event_times"] is False


# In a task


def _own(name: str, version: str, kind: str = COLUMNS) -> Own:
    return Own(name, (), version, "", kind)


def test_a_run_refuses_code_of_another_version_than_the_trial(package: OutsidePackage) -> None:
    """The run fails, instead of naming a version that did not choose."""
    own: Any = _own("outside:Longest", "2.4", STRATEGIC)
    why = "needs its version 2.4, but a process has loaded version 2.5"
    with pytest.raises(StrategyFailed, match=why):
        own.strategy.create()


def test_the_results_of_a_strategy_are_checked_in_tasks(package: OutsidePackage) -> None:
    """Not only by samples."""
    (package.folder / "late.py").write_text(
        "from dataclasses import replace\n"
        "from tests.support.strategies import FIRST\n"
        "def begin(codes, facts, keys):\n"
        "    return FIRST.begin(codes, facts, keys) if len(codes) < 9 else 1 // 0\n"
        "LATE = replace(FIRST, begin=begin)\n"
    )
    strategy = _own("late:LATE", "3").strategy
    assert isinstance(strategy, Strategy)
    for messages in (3, 9):
        codes = np.zeros(messages, np.int64)
        facts = Facts(np.arange(messages), np.ones(messages, np.bool_))
        if messages == 3:
            joined = strategy.join(*_joinable(strategy.begin(codes, facts, 1)))
            assert strategy.survivors(joined.fragments).tolist() == [0]
            continue
        with pytest.raises(StrategyFailed, match=r"'late:LATE': ZeroDivisionError: .*, in begin"):
            strategy.begin(codes, facts, 1)
    sys.modules.pop("late")


def _joinable(folded: Folded) -> tuple[Any, Any, int]:
    return np.zeros(1, np.int64), folded.fragments, 1
