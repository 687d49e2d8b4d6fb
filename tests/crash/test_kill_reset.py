"""kill -9 at each named step of a reset: a start finds everything, or nothing."""

from __future__ import annotations

import contextlib

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import LedgerfoldError
from tests.conftest import MakeBroker
from tests.crash.test_kill_compaction import orphans
from tests.support.command_line import ledgerfold


@pytest.mark.parametrize(
    ("point", "is_done"), [("reset.unloaded", False), ("reset.recorded", True)]
)
def test_a_broker_killed_in_a_reset(broker_process: MakeBroker, point: str, is_done: bool) -> None:
    broker = broker_process("--allow-reset", crash_at=point)
    with Admin(broker.url) as admin, Client(broker.url) as client:
        client.create_producer("t").send(b"v")
        admin.create_namespace("public/other")
        with contextlib.suppress(LedgerfoldError):
            admin.reset()
        broker.wait()
    assert ledgerfold("verify", str(broker.data_dir)).code == 0
    broker.start()
    with Admin(broker.url) as admin, Client(broker.url) as client:
        namespaces = [] if is_done else ["public/other"]
        assert admin.list_namespaces() == ["public/default", *namespaces]
        assert len(admin.list_topics()) == (not is_done)
        if not is_done:
            with client.create_reader("t", MessageId.earliest) as reader:
                assert [message.data() for message in reader] == [b"v"]
    assert broker.stop() == 0
    assert orphans(broker.data_dir) == []
