"""Fixtures of all tests: brokers in separate processes, topics with unique names.

    def test_...(broker_process):   a factory: brokers on fresh directories, ended with the test
    def test_...(compactor):   one compactor process with a warm Spark for the whole session
    def test_...(shared_broker, topic):   one broker with that compactor for the whole session

Tests that use one of the last two start Spark: they are therefore marked `spark`, and skipped with
the reason without Java. Tests with a process of any kind are marked `process`, by a fixture, by
their folder or by hand; one that starts a process without the mark fails
(tests/support/process_guard.py). `--fast` deselects both, and tests marked `slow`.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.links import check_links

# Before the first import of the product.
check_links(Path(__file__).resolve().parent.parent)

from ledgerfold.garbage import garbage_kept  # noqa: E402
from tests.cases.ledgerfold import ALLOWED as CASES_ALLOWED  # noqa: E402
from tests.side_by_side import PART_MARKS, PROCESS_FOLDERS, parts_of  # noqa: E402
from tests.stagger.sitecustomize import staggered  # noqa: E402
from tests.support.broker_process import BrokerProcess  # noqa: E402
from tests.support.compactor_process import CompactorProcess  # noqa: E402
from tests.support.process_guard import no_processes  # noqa: E402
from tests.support.property_tests import load_profile  # noqa: E402


class MakeBroker(Protocol):
    """`name` distinguishes several brokers of one test; the other arguments are those of
    BrokerProcess.
    """

    def __call__(
        self,
        *arguments: str,
        name: str = "data",
        environment: dict[str, str] | None = None,
        crash_at: str | None = None,
        compactor: str = "off",
    ) -> BrokerProcess: ...


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return bool(shutil.which("java") or (home and Path(home, "bin", "java").exists()))


# Fixtures that start processes.
PROCESS_FIXTURES = frozenset({"broker_process", "shared_broker", "compactor", "worker", "url"})
# Strategies in a test module: broker and compactor may load them.
ALLOWED = ("--allow-strategy=shop:Best", "--allow-strategy=shop:Worst")
NOT_FAST = ("process", "spark", "slow")
TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="only what needs no process, no Spark and little time"
    )
    parser.addoption(
        "--skip-slow", action="store_true", help="leave out tests that take more than ten seconds"
    )
    parser.addoption(
        "--stagger", metavar="SEED", help="pause threads at random where they hand work over"
    )


def pytest_configure(config: pytest.Config) -> None:
    load_profile(fast=config.getoption("--fast"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts its background jobs so, and their processes inherit it: tests, and
        # tests/side_by_side.py, interrupt what they start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if seed := config.getoption("--stagger"):
        config.pluginmanager.register(staggered(seed))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast run need not import modules that it deselects completely."""
    if config.getoption("--fast") and collection_path in map(TESTS.joinpath, PROCESS_FOLDERS):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collected tests and modules are no garbage: no later search looks at them."""
    with garbage_kept():
        result = yield
    gc.freeze()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # First, so that `-m "not spark"` sees the marks that are added here.
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        folder = item.path.relative_to(TESTS).parts[0]
        if "compactor" in fixtures:
            item.add_marker(pytest.mark.spark)
        if fixtures & PROCESS_FIXTURES or folder in PROCESS_FOLDERS:
            item.add_marker(pytest.mark.process)
        held = frozenset(filter(item.get_closest_marker, PART_MARKS))
        if len(parts_of(folder, held)) != 1:
            raise pytest.UsageError(
                f"No part of the whole suite runs {item.nodeid} with its marks: move it to another "
                "folder, or change tests/side_by_side.py."
            )
        if item.get_closest_marker("spark") and not has_java():
            item.add_marker(pytest.mark.skip(reason="needs Java 17 or newer"))
        if item.get_closest_marker("slow") and config.getoption("--skip-slow"):
            item.add_marker(pytest.mark.skip(reason="--skip-slow"))
    if config.getoption("--fast"):
        left_out = {item for item in items if any(map(item.get_closest_marker, NOT_FAST))}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
        # Tests of the whole tree parse it once for each worker, which steal from each other's end.
        items.sort(key=lambda item: item.path.parent != TESTS / "unit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around a whole test, its fixtures included."""
    if item.get_closest_marker("process") or item.get_closest_marker("spark"):
        return (yield)
    with no_processes(item.nodeid):
        return (yield)


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[MakeBroker]:
    """Starts brokers that end with the test. Without a compactor unless the arguments name
    `local`.
    """
    started: list[BrokerProcess] = []

    def make(
        *arguments: str,
        name: str = "data",
        environment: dict[str, str] | None = None,
        crash_at: str | None = None,
        compactor: str = "off",
    ) -> BrokerProcess:
        broker = BrokerProcess(
            tmp_path / name,
            arguments=("--compactor", compactor, *arguments),
            environment=environment,
            crash_at=crash_at,
        )
        started.append(broker)
        return broker

    yield make
    _close_all(started)


def _close_all(brokers: list[BrokerProcess]) -> None:
    try:
        for broker in brokers:
            broker.close()
    finally:
        for broker in brokers:
            print(f"Standard error of the broker on {broker.data_dir}:\n{broker.stderr}")


@pytest.fixture(scope="session")
def compactor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompactorProcess]:
    """One compactor process for all brokers of the session that ask for it."""
    folder, allowed = tmp_path_factory.mktemp("compactor"), (*ALLOWED, *CASES_ALLOWED)
    with CompactorProcess(folder, arguments=allowed) as started:
        yield started


@pytest.fixture(scope="session")
def shared_broker(
    tmp_path_factory: pytest.TempPathFactory, compactor: CompactorProcess
) -> Iterator[BrokerProcess]:
    """One broker with a warm compactor. Its topics are shared: use `topic` for a name."""
    data_dir = tmp_path_factory.mktemp("shared") / "data"
    arguments = ("--compactor", compactor.address, *ALLOWED)
    with BrokerProcess(data_dir, arguments=arguments) as broker:
        broker.wait_for_compactor()
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Returns a topic name that no other test has."""
    return "test-" + re.sub(r"[^A-Za-z0-9]+", "-", request.node.nodeid).strip("-").lower()


@pytest.fixture
def new_topic(topic: str) -> Callable[[str], str]:
    """Returns a factory of topic names that no other test has."""
    return lambda suffix: f"{topic}-{suffix}"
