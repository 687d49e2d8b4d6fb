"""Every file of a data directory is accessible to its owner only, whichever command wrote it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.owner_only import OTHERS
from ledgerfold.v1 import admin_pb2
from tests.conftest import MakeBroker
from tests.support.command_line import ledgerfold
from tests.support.compaction import damage
from tests.support.waiting import RUN_S

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def open_handed() -> Iterator[None]:
    """Sets a umask that denies nothing, which processes inherit."""
    before = os.umask(0)
    yield
    os.umask(before)


def wide(data: Path) -> list[str]:
    """Returns the files that others may access. Files of the worker appear and disappear."""
    paths = [
        Path(folder, name)
        for folder, folders, files in os.walk(data)
        for name in (".", *folders, *files)
    ]
    return [str(path) for path in paths if path.exists() and path.stat().st_mode & OTHERS]


def test_files_are_private_after_publishing_compaction_and_repair(
    broker_process: MakeBroker, tmp_path: Path
) -> None:
    """Nothing in the directory is accessible to other users."""
    ready = tmp_path / "ready"
    arguments = ("--ledger-entries", "2", "--ready-file", str(ready))
    broker = broker_process(*arguments, compactor="local")
    with Client(broker.url) as client, Admin(broker.url) as admin:
        client.subscribe("t", "s").close()
        producer = client.create_producer("t")
        for value in (b"1", b"2", b"3", b"4", b"5"):
            producer.send(value, partition_key="k")
        broker.wait_for_compactor()
        admin.trigger_compaction("t")
        *_, last = admin.watch_compaction("t", timeout_seconds=RUN_S)
        assert last.status == admin_pb2.COMPACTION_STATUS_SUCCESS
    assert list((broker.data_dir / "compactor" / "work").glob("*/spark"))
    assert not wide(broker.data_dir)
    assert ready.stat().st_mode & 0o777 == 0o644

    broker.kill()
    segments = [path for path in broker.data_dir.rglob("*.log") if path.parent.name.isdecimal()]
    # Not one of a single entry, which may be shorter.
    damage(max(segments, key=lambda path: path.stat().st_size), 200)
    assert ledgerfold("repair", str(broker.data_dir), "--yes").code == 0
    assert list((broker.data_dir / "repairs").rglob("*.log"))
    assert not wide(broker.data_dir)
