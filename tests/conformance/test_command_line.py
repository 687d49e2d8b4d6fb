"""Cases of the catalogue that are about the command line, which uses pulsar-admin's texts."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import TopicNotFound
from tests.support.broker_process import BrokerProcess
from tests.support.compactor_process import CompactorProcess
from tests.support.waiting import WAIT_S

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def admin_topics(shared_broker: BrokerProcess) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ledgerfold", "--url", shared_broker.url, "topics", *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    return run


@pytest.fixture
def published(shared_broker: BrokerProcess, topic: str) -> str:
    with Client(shared_broker.url) as client:
        client.create_producer(topic).send(b"1", partition_key="a")
    return topic


def test_adm_15_texts_of_a_run(
    admin_topics: Run, published: str, compactor: CompactorProcess
) -> None:
    """Before, during and after it; `-w` waits for its end."""
    assert "not been run" in admin_topics("compaction-status", published).stdout
    compactor.stop()
    try:
        assert "requested" in admin_topics("compact", published).stdout
        assert "currently running" in admin_topics("compaction-status", published).stdout
        resume = threading.Timer(1.0, compactor.go_on)
        resume.start()
        assert "was a success" in admin_topics("compaction-status", "-w", published).stdout
        resume.join()
    finally:
        compactor.go_on()
    assert "was a success" in admin_topics("compaction-status", published).stdout


def test_adm_16_the_text_of_a_failure(
    admin_topics: Run, shared_broker: BrokerProcess, published: str, compactor: CompactorProcess
) -> None:
    """The text has the error, and the exit code is 1."""
    compactor.stop()
    resume = threading.Timer(1.0, compactor.go_on)
    try:
        with Admin(shared_broker.url) as admin:
            admin.trigger_compaction(published)
            resume.start()
            admin.cancel_compaction(published)
            last_error = admin.compaction_status(published).last_error
    finally:
        resume.join()
        compactor.go_on()
    answer = admin_topics("compaction-status", "-w", published)
    assert last_error
    assert answer.stderr == f"Error in compaction: {last_error}\n"
    assert answer.returncode == 1


def test_raw_06_a_trigger_or_a_status_creates_nothing(
    shared_broker: BrokerProcess, topic: str
) -> None:
    """A trigger and a status of a topic that does not exist create nothing."""
    with Admin(shared_broker.url) as admin:
        for ask in (admin.trigger_compaction, admin.compaction_status, admin.last_message_id):
            with pytest.raises(TopicNotFound):
                ask(topic)
        assert not any(name.endswith(topic) for name in admin.list_topics())
