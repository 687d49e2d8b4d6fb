"""Compares `explain`'s answer for each offset with the real cleaner."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.cli.data.import_kafka import import_folder
from ledgerfold.broker.client import MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
from tests.oracle.test_kafka_folders import OURS, fill
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_oracle import COMMAND, KafkaOracle

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(COMMAND not in os.environ, reason=f"{COMMAND} names no command"),
]
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("explained") / "data"
    arguments = ("--compactor", "off", "--test-clock", str(START_MS))
    with BrokerProcess(folder, arguments=arguments) as broker:
        yield broker


def offsets(oracle: KafkaOracle) -> set[int]:
    return {
        record["offset"]
        for batch in oracle("batches", log="t-0")["batches"]
        for record in batch["records"]
    }


def test_messages_announced_as_removed_are_removed(broker: BrokerProcess, tmp_path: Path) -> None:
    """One cleaning after the other, until tombstones, markers and aborted transactions are
    removed.
    """
    with (
        KafkaOracle(tmp_path / "oracle") as oracle,
        KafkaLogs(broker.url) as logs,
        Admin(broker.url) as admin,
    ):
        oracle("clock", set=START_MS)
        fill(oracle)
        gone = list[int]()
        for number in range(4):
            topic = f"round-{number}"
            oracle("append", log="t-0", records=[{"key": "end", "value": None}])
            oracle("roll", log="t-0")
            oracle("reopen", log="t-0")
            shutil.copytree(oracle.log_dir, tmp_path / topic)
            import_folder(logs, tmp_path / topic / "t-0", topic, OURS, stays_paused=True)
            now_ms = oracle("clock", advance=0)["now"]
            admin.move_clock(to_ms=now_ms)
            before, goes = offsets(oracle), set()
            for offset in before:
                at = MessageId(-1, 0, offset, -1)
                (told,) = admin.explain(topic, message_id=at).versions
                if told.next.startswith("goes"):
                    goes.add(offset)
            oracle("clean")
            assert goes == before - offsets(oracle), number
            gone.append(len(goes))
            oracle("clock", advance=90_000_000)
        # Values and aborted data; tombstones and markers after their horizons.
        assert all(gone[:1] + gone[2:3]), gone
