"""The pytest plugin: a broker for a run of tests, and a namespace for each test.

A test that takes the fixture `ledgerfold` has a `ledgerfold.testing.Namespace`. docs/TESTING.md is
the manual. pytest loads this module at every start, so it imports nothing but pytest: what needs
the client is imported by the fixtures.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ledgerfold.testing import ExistingBroker, Namespace

_TENANT = "tests"
_NAME_CHARS_MAX = 60
# The part of the log's end that a report shows.
_LOG_BYTES_MAX = 16 * 1024
_FIXTURE = "ledgerfold_broker"
_HAS_FAILED = pytest.StashKey[bool]()
# Of a test: the namespace that it was given.
_NAMESPACE = pytest.StashKey[str]()


class _Session:
    """The broker of this run, if there is one, as far as reports need it."""

    def __init__(self) -> None:
        self.broker: ExistingBroker | None = None
        self.log: Path | None = None
        self.data_dir: Path | None = None
        # The end of the log when the current test began.
        self.log_began = 0
        self.has_failed = False

    @property
    def log_end(self) -> int:
        return 0 if self.log is None else self.log.stat().st_size

    def log_of_test(self) -> str:
        """Returns what the broker has logged during the current test."""
        if self.log is None or self.log_end == self.log_began:
            return "(nothing)"
        with self.log.open("rb") as file:
            file.seek(max(self.log_began, self.log_end - _LOG_BYTES_MAX))
            return file.read().decode(errors="replace")


_SESSION = pytest.StashKey[_Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ledgerfold")
    profile = "the broker's profile: documented (the default) or pulsar-4"
    group.addoption("--ledgerfold-profile", metavar="NAME", help=profile)
    url = "use the broker at this address instead of starting one"
    group.addoption("--ledgerfold-url", metavar="HOST:PORT", help=url)
    keep = "keep the data and the namespace of a test that fails, and say where they are"
    group.addoption("--ledgerfold-keep", action="store_true", help=keep)
    clock = "manual (the default): only tests move the broker's time; real: the machine's clock"
    choices = ("manual", "real")
    group.addoption("--ledgerfold-clock", choices=choices, default="manual", help=clock)
    compactor = "where compactions run, as in serve --compactor: inline (the default), spark, ..."
    group.addoption("--ledgerfold-compactor", default="inline", metavar="WHERE", help=compactor)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SESSION] = _Session()


# NOTE: after pytest has looked for marks that skip the test, and before it sets up fixtures.
def pytest_runtest_setup(item: pytest.Item) -> None:
    session = item.config.stash[_SESSION]
    session.log_began = session.log_end
    if session.broker is not None and _uses_broker(item):
        _check_runs(session.broker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _uses_broker(item):
        session = item.config.stash[_SESSION]
        session.has_failed = item.stash[_HAS_FAILED] = True
        if session.log is not None:
            report.sections.append(("Log of the ledgerfold broker", session.log_of_test()))
        if item.config.getoption("--ledgerfold-keep"):
            report.sections += _summary(item, report.when)
    return report


def _uses_broker(item: pytest.Item) -> bool:
    """Returns whether the test takes the fixture, or has requested it while it ran."""
    # The item names the arguments only; its request, which is not public, all fixtures so far.
    request = getattr(item, "_request", item)
    return _NAMESPACE in item.stash or _FIXTURE in getattr(request, "fixturenames", ())


def _summary(item: pytest.Item, when: str | None) -> Iterator[tuple[str, str]]:
    """Yields the sections of a report that name what is kept."""
    session = item.config.stash[_SESSION]
    if session.data_dir is not None:
        yield "Data of the ledgerfold broker", str(session.data_dir)
    # Before a teardown fails, the namespace of a test that has passed is deleted.
    if when != "teardown" and (name := item.stash.get(_NAMESPACE, None)) is not None:
        yield "Namespace of the test", name


@pytest.fixture(scope="session")
def ledgerfold_broker(request: pytest.FixtureRequest) -> Iterator[ExistingBroker]:
    """A broker for all tests of the run, or of one worker of pytest-xdist."""
    from ledgerfold.testing import Broker, ExistingBroker

    url = request.config.getoption("--ledgerfold-url")
    if url is not None:
        with ExistingBroker(url) as existing:
            with _without_traceback(f"--ledgerfold-url {url} cannot be used"):
                existing.admin.clock()
            yield existing
        return
    session = request.config.stash[_SESSION]
    folder = Path(tempfile.mkdtemp(prefix="ledgerfold-tests-"))
    try:
        with ExitStack() as block:
            with _without_traceback("ledgerfold_broker"):
                started = Broker(folder / "data", arguments=_arguments(request.config))
                broker = block.enter_context(started)
            session.broker, session.log, session.data_dir = broker, broker.log, broker.data_dir
            yield broker
    finally:
        session.broker = session.log = None
        if not (session.has_failed and request.config.getoption("--ledgerfold-keep")):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _without_traceback(what: str) -> Iterator[None]:
    """Reports an error of the block as one sentence, which all tests with the broker repeat."""
    from ledgerfold.errors import LedgerfoldError

    failure: LedgerfoldError | None = None
    try:
        yield
    except LedgerfoldError as error:
        failure = error
    # Not in the block: pytest would report both errors.
    if failure is not None:
        pytest.fail(f"{what}: {failure}", pytrace=False)


@pytest.fixture
def ledgerfold(
    request: pytest.FixtureRequest, ledgerfold_broker: ExistingBroker
) -> Iterator[Namespace]:
    """A namespace for one test; it is deleted after the test, with all its contents."""
    from ledgerfold.testing import Namespace

    # Tests of several runs may share a broker.
    local = re.sub(r"[^A-Za-z0-9_.=-]+", "-", request.node.name)[:_NAME_CHARS_MAX]
    request.node.stash[_NAMESPACE] = name = f"{_TENANT}/{local}-{uuid.uuid4().hex[:8]}"
    _check_runs(ledgerfold_broker)
    with Namespace(ledgerfold_broker, name) as namespace:
        yield namespace
        has_failed = request.node.stash.get(_HAS_FAILED, False)
        namespace.keep = has_failed and request.config.getoption("--ledgerfold-keep")
    _check_runs(ledgerfold_broker)


def _check_runs(broker: ExistingBroker) -> None:
    """Fails the test, in one sentence, if the broker of this run has ended."""
    if (how := getattr(broker, "ended", None)) is not None:
        pytest.fail(f"The ledgerfold broker of this run has ended {how}.", pytrace=False)


def _arguments(config: pytest.Config) -> list[str]:
    """Returns the arguments of `serve`."""
    any_port = "127.0.0.1:0"
    arguments = ["--pulsar-listen", any_port, "--admin-listen", any_port]
    arguments += ["--allow-reset", "--allow-faults"]
    arguments += ["--compactor", config.getoption("--ledgerfold-compactor")]
    # The data are deleted after the run: they need not survive the machine.
    arguments += ["--durability", "os"]
    if config.getoption("--ledgerfold-clock") == "manual":
        arguments.append("--test-clock")
    if profile := config.getoption("--ledgerfold-profile"):
        arguments += ["--profile", profile]
    return arguments
