"""`ledgerfold snapshot` and Admin's calls: on a real broker and a real disk."""

from __future__ import annotations

import json

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import NotAllowed, SnapshotExists, SnapshotNotFound
from tests.conftest import MakeBroker
from tests.support.command_line import ledgerfold


def test_snapshots_need_the_server_option(broker_process: MakeBroker) -> None:
    with Admin(broker_process().url) as admin:
        for call in (admin.save_snapshot, admin.restore_snapshot, admin.delete_snapshot):
            with pytest.raises(NotAllowed, match="--allow-reset"):
                call("s")
        with pytest.raises(NotAllowed, match="--allow-reset"):
            admin.list_snapshots()


def test_a_restore_brings_back_the_saved_state(broker_process: MakeBroker) -> None:
    """With clients that stay connected, and after a restart; `verify` reports damage."""
    broker = broker_process("--allow-reset")
    with Client(broker.url) as client, Admin(broker.url) as admin:
        producer = client.create_producer("t")
        producer.send(b"before")
        assert ledgerfold("snapshot", "save", "s", "--url", broker.url).code == 0
        with pytest.raises(SnapshotExists):
            admin.save_snapshot("s")
        first = producer.send(b"after")
        client.create_producer("other").send(b"new")
        assert admin.restore_snapshot("s").topics == 1
        # Linked, not copied.
        saved = [each.stat() for each in (broker.data_dir / "snapshots" / "s").glob("*.log")]
        assert saved
        assert min(each.st_nlink for each in saved) > 1
        with client.create_reader("t", MessageId.earliest) as reader:
            assert [message.data() for message in reader] == [b"before"]
        again = producer.send(b"again")
        assert again.ledger_id() > first.ledger_id()
        ran = ledgerfold("snapshot", "list", "--url", broker.url, "-o", "json")
        assert [each["name"] for each in json.loads(ran.out)] == ["s"]
        admin.save_snapshot("damaged")
        producer.close()
    assert broker.stop() == 0
    assert ledgerfold("verify", str(broker.data_dir)).code == 0
    (broker.data_dir / "snapshots" / "damaged" / "records").write_bytes(b"damage")
    verified = ledgerfold("verify", str(broker.data_dir))
    assert (verified.code, verified.out.count("snapshots/damaged")) == (6, 2)
    broker.start()
    with Client(broker.url) as client, Admin(broker.url) as admin:
        admin.delete_snapshot("damaged")
        with pytest.raises(SnapshotNotFound):
            admin.delete_snapshot("damaged")
        admin.reset()
        admin.restore_snapshot("s")
        with client.create_reader("t", MessageId.earliest) as reader:
            assert [message.data() for message in reader] == [b"before"]
    assert broker.stop() == 0
    assert ledgerfold("verify", str(broker.data_dir)).code == 0
