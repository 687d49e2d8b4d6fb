"""kill -9 at each named step of a save and a restore: the state is the one before or after."""

from __future__ import annotations

import contextlib

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import LedgerfoldError
from tests.conftest import MakeBroker
from tests.crash.test_kill_compaction import orphans
from tests.support.command_line import ledgerfold

pytestmark = pytest.mark.slow
SAVING = {"snapshot.linked": [], "snapshot.renamed": ["s"]}
RESTORING = {"restore.marked": False, "restore.linked": False, "restore.recorded": True}


def data_in(url: str, topic: str) -> list[bytes]:
    with Client(url) as client, client.create_reader(topic, MessageId.earliest) as reader:
        return [message.data() for message in reader]


@pytest.mark.parametrize("point", [*SAVING, *RESTORING])
def test_a_broker_killed_in_a_snapshot(broker_process: MakeBroker, point: str) -> None:
    broker = broker_process("--allow-reset", crash_at=point)
    with Admin(broker.url) as admin, Client(broker.url) as client:
        client.create_producer("t").send(b"v")
        with contextlib.suppress(LedgerfoldError):
            admin.save_snapshot("s")
            # First, because a producer that connects again creates the topic again.
            client.shutdown()
            admin.delete_topic("t", force=True)
            admin.create_topic("u")
            admin.restore_snapshot("s")
        broker.wait()
    assert ledgerfold("verify", str(broker.data_dir)).code == 0
    broker.start()
    with Admin(broker.url) as admin:
        names = [each.name for each in admin.list_snapshots()]
        assert names == SAVING.get(point, ["s"])
        is_saved = point in SAVING or RESTORING[point]
        if is_saved:
            assert data_in(broker.url, "t") == [b"v"]
        else:
            assert admin.list_topics() == ["persistent://public/default/u"]
        if names:
            admin.restore_snapshot("s")
            assert data_in(broker.url, "t") == [b"v"]
    assert broker.stop() == 0
    assert orphans(broker.data_dir) == []
