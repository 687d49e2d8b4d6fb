"""An interrupted import or export of a Kafka log leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
from ledgerfold.storage.errors import TopicNotFound
from tests.unit.cli.conftest import Ledgerfold

GOLDEN = Path(__file__).with_name("kafka-folders") / "cleaned-0"
# SIGTERM arrives with the first batch of the import, or the first page of the export.
ENDED = """
import os, signal, sys
from ledgerfold.broker.cli.main import main
from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs

def end(*_, **__):
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()

KafkaLogs.take_over = KafkaLogs.batches = end
sys.exit(main())
"""


def ended(url: str, *arguments: str) -> int:
    command = [sys.executable, "-c", ENDED, "--url", url, *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def test_an_ended_import_leaves_no_topic(url: str) -> None:
    assert ended(url, "import", "kafka-log", str(GOLDEN), "--topic", "ended-half") == 130
    with KafkaLogs(url) as logs, pytest.raises(TopicNotFound):
        logs.describe("ended-half")


def test_the_cleaner_continues_after_an_ended_export(
    cli: Ledgerfold, url: str, tmp_path: Path
) -> None:
    assert cli("import", "kafka-log", str(GOLDEN), "--topic", "ended-out").code == 0
    assert ended(url, "export", "kafka-log", "ended-out", str(tmp_path / "out-0")) == 130
    with KafkaLogs(url) as logs:
        assert logs.describe("ended-out").cleaning_state == ""
    assert not list(tmp_path.iterdir())
