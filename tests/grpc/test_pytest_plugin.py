"""The pytest plugin, as projects use it: the example of docs/TESTING.md, and failing tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.admin import Admin
from ledgerfold.broker.demo.own_broker import answers
from tests.conftest import MakeBroker
from tests.support.documents import document
from tests.support.waiting import wait_until
from tests.tidy import ROOT

_TIMEOUT_S = 110
FAILING = """
def test_that_fails(ledgerfold):
    topic = ledgerfold.topic("t")
    ledgerfold.client.create_producer(topic).send(b"kept")
    assert ledgerfold.admin.unload(topic), ledgerfold.name


def test_after_it(ledgerfold):
    names = ledgerfold.admin.list_namespaces("tests")
    print(len(names))
    assert False
"""
REQUESTED = """
import pytest


@pytest.mark.parametrize("name", ["ledgerfold", "ledgerfold_broker"])
def test_that_fails(request, name):
    request.getfixturevalue(name).admin.create_tenant(name.replace("_", "-"))
    assert False
"""
WITHOUT_COMPACTOR = """
import asyncio

import pytest
from ledgerfold.errors import CompactorUnavailable


def test_it_compacts(ledgerfold):
    ledgerfold.client.create_producer(ledgerfold.topic("t")).send(b"1", partition_key="k")
    with pytest.raises(CompactorUnavailable):
        ledgerfold.compact("t")
    with pytest.raises(CompactorUnavailable):
        asyncio.run(ledgerfold.compact_async(ledgerfold.topic("t")))
    assert ledgerfold.pulsar_url.startswith("pulsar://")
    assert ledgerfold.admin_url.startswith("http://")
"""
MISTAKEN = """
import unittest

import pytest
from ledgerfold.admin import Admin
from ledgerfold.errors import InvalidRequest, TopicNotFound, Unavailable
from ledgerfold.testing import Namespace


def test_a_topic_of_another_namespace(ledgerfold):
    ledgerfold.client.create_producer("prices").close()
    with pytest.raises(TopicNotFound) as raised:
        ledgerfold.compact("prices")
    assert f"full names: persistent://{ledgerfold.name}/NAME" in raised.value.__notes__[0]
    ledgerfold.admin.delete_topic("prices")


def test_seconds(ledgerfold):
    for call in (ledgerfold.clock.advance, lambda by: ledgerfold.faults.delay("read", by)):
        with pytest.raises(InvalidRequest, match=r"timedelta\\(days=1\\), not int"):
            call(5)


def test_the_port_of_pulsars_protocol(ledgerfold):
    with Admin(ledgerfold.pulsar_url) as admin, pytest.raises(Unavailable) as raised:
        admin.clock()
    assert "Is it the port of --listen" in str(raised.value)


@pytest.fixture(scope="module")
def module(ledgerfold_broker):
    with Namespace(ledgerfold_broker, "tests/module") as namespace:
        yield namespace


class PricesTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _namespace(self, ledgerfold, module):
        self.ledgerfold, self.module = ledgerfold, module

    def test_it(self):
        assert self.ledgerfold.name != self.module.name == "tests/module"
        assert self.module.name in self.ledgerfold.admin.list_namespaces("tests")
"""
ENDLESS = """
import threading
from pathlib import Path


def test_that_does_not_end(ledgerfold):
    Path("url.tmp").write_text(ledgerfold.url)
    Path("url.tmp").rename("url")
    threading.Event().wait()
"""
DYING = """
import os
import signal

import pytest


def test_that_kills_the_broker(ledgerfold, ledgerfold_broker):
    ledgerfold.faults.fail("publish", "ProducerBusy")
    process = ledgerfold_broker._started.process
    process.kill()
    process.wait()


def test_after_it(ledgerfold):
    pass


@pytest.mark.skip
def test_that_is_skipped(ledgerfold_broker):
    pass


def test_that_takes_only_the_broker(ledgerfold_broker):
    ledgerfold_broker.admin.list_topics()


def test_without_it():
    pass
"""
WITH_ASYNC_PLUGINS = """
import pytest


async def publish(ledgerfold):
    async with ledgerfold.async_client() as client:
        producer = await client.create_producer(ledgerfold.topic("t"))
        for value in (b"1", b"2"):
            await producer.send(value, partition_key="k")
    status = await ledgerfold.compact_async(ledgerfold.topic("t"))
    assert status.run.counts.messages_out == 1


@pytest.mark.asyncio
async def test_by_pytest_asyncio(ledgerfold):
    await publish(ledgerfold)


@pytest.mark.anyio
async def test_by_anyio(ledgerfold, anyio_backend_name):
    assert anyio_backend_name == "asyncio"
    await publish(ledgerfold)


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
UNUSED = """
import sys


def test_without_it():
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"grpc", "google", "rocksdict", "pyarrow", "pyspark"}
    assert not [name for name in sys.modules if name.startswith("ledgerfold.broker")]
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a separate project, with its temporary files in it."""
    with start(folder, *arguments) as process:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    for name in ("GRPC_ENABLE_FORK_SUPPORT", "PYTHONPATH", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    options = ["-q", "-p", "no:cacheprovider", "-W", "error"]
    # Without this option, pytest-asyncio warns in each run.
    options += ["-o", "asyncio_default_fixture_loop_scope=function"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Returns the folder of the document's project."""
    for block in document(ROOT / "docs" / "TESTING.md"):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text)
    return tmp_path


def test_the_documented_tests_pass_with_workers(shop: Path) -> None:
    """Each worker has a broker, and nothing remains of them."""
    ran = run(shop, "-n", "2", "test_shop.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout
    assert not list((shop / "temporary").glob("ledgerfold-*"))


def test_without_a_compactor(tmp_path: Path) -> None:
    (tmp_path / "test_calls.py").write_text(WITHOUT_COMPACTOR)
    ran = run(tmp_path, "--ledgerfold-compactor", "off")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_documented_tests_pass_on_a_running_broker(
    shop: Path, broker_process: MakeBroker
) -> None:
    """Its namespaces are deleted from it."""
    broker = broker_process("--test-clock", compactor="inline")
    ran = run(shop, "--ledgerfold-url", broker.url, "test_shop.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with Admin(broker.url) as admin:
        assert admin.list_topics() == []
        assert admin.list_namespaces() == ["public/default"]


def test_a_failing_test_shows_the_log_and_keeps_the_data(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    ran = run(tmp_path, "--ledgerfold-keep", "--ledgerfold-profile", "pulsar-4")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.count("Log of the ledgerfold broker") == 2
    # The namespace of the first one still exists.
    assert "\n2\n" in ran.stdout
    found = re.search(r"^/.*/data$", ran.stdout, re.MULTILINE)
    assert found is not None
    assert Path(found[0], "ledgers").is_dir()


def test_fixtures_that_a_failing_test_requests_itself(tmp_path: Path) -> None:
    """All tests of reports named their fixtures as arguments; others got no sections."""
    (tmp_path / "test_requested.py").write_text(REQUESTED)
    ran = run(tmp_path, "--ledgerfold-keep")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.count("Log of the ledgerfold broker") == 2
    assert ran.stdout.count("Data of the ledgerfold broker") == 2
    assert re.findall(r"^tests/test_that_fails-ledgerfold-", ran.stdout, re.MULTILINE)


def test_a_kept_namespace_of_a_running_broker_is_named(
    tmp_path: Path, broker_process: MakeBroker
) -> None:
    """No test had failed on a running broker: nothing said what stayed in it."""
    broker = broker_process()
    (tmp_path / "test_failing.py").write_text(FAILING)
    ran = run(tmp_path, "--ledgerfold-url", broker.url, "--ledgerfold-keep", "-k", "fails")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    with Admin(broker.url) as admin:
        [name] = admin.list_namespaces("tests")
    assert f"\n{name}\n" in ran.stdout


def test_a_failing_test_leaves_nothing_by_default(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    ran = run(tmp_path, "-k", "fails")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "Data of the ledgerfold broker" not in ran.stdout
    assert not list((tmp_path / "temporary").glob("ledgerfold-*"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--ledgerfold-url", "127.0.0.1:1"], "--ledgerfold-url 127.0.0.1:1 cannot be used: "),
        (["--ledgerfold-url", "localhost"], "Service URL 'localhost': expected host:port."),
        (["--ledgerfold-compactor", "java"], "--compactor java: use auto, spark, inline"),
    ],
)
def test_a_broker_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    """Every test of a run repeated the tracebacks of the plugin and of gRPC."""
    (tmp_path / "test_failing.py").write_text(FAILING)
    ran = run(tmp_path, *options, "-k", "fails")
    assert sentence in ran.stdout
    assert "Traceback" not in ran.stdout
    assert "testing_broker.py" not in ran.stdout


def test_mistakes_of_a_new_test_are_explained(tmp_path: Path) -> None:
    (tmp_path / "test_mistaken.py").write_text(MISTAKEN)
    ran = run(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_broker_outlives_its_run(tmp_path: Path, signal_number: signal.Signals) -> None:
    """A run that was killed, as by a CI job's time limit, left its broker. No run was killed."""
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    with start(tmp_path) as process:
        try:
            wait_until((tmp_path / "url").exists, "the test that runs", _TIMEOUT_S)
            url = (tmp_path / "url").read_text()
            assert answers(url)
            process.send_signal(signal_number)
            process.communicate(timeout=_TIMEOUT_S)
        finally:
            process.kill()
    wait_until(lambda: not answers(url), "the end of the broker")


def test_a_broker_that_ends_during_a_run_is_reported_once_per_test(tmp_path: Path) -> None:
    """Later tests had tracebacks of gRPC that named an address. No broker had ended in a run."""
    (tmp_path / "test_dying.py").write_text(DYING)
    ran = run(tmp_path)
    assert "2 passed, 1 skipped, 3 errors" in ran.stdout, ran.stdout + ran.stderr
    assert ran.stdout.count("\nThe ledgerfold broker of this run has ended by SIGKILL.\n") == 3
    assert "Traceback" not in ran.stdout


def test_asynchronous_tests_by_two_plugins(tmp_path: Path) -> None:
    (tmp_path / "test_async.py").write_text(WITH_ASYNC_PLUGINS)
    ran = run(tmp_path)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_an_unused_plugin_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(UNUSED)
    ran = run(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
