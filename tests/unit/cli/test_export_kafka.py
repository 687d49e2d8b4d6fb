"""`export kafka-log` writes an imported log of Kafka again, byte for byte.

kafka-folders/ was written by Kafka 4.1.0's classes: compressed batches, tombstones with and without
horizons, transactions, idempotent producers; cleaned twice, with a transaction open.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from ledgerfold.broker.cli.data.export_kafka import export_folder
from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.kafka.folder_writer import FolderWriter
from tests.unit.cli.conftest import Ledgerfold

GOLDEN = Path(__file__).with_name("kafka-folders") / "cleaned-0"


@pytest.fixture
def logs(url: str) -> Iterator[KafkaLogs]:
    with KafkaLogs(url) as logs:
        yield logs


def imported(cli: Ledgerfold, topic: str) -> None:
    ran = cli(
        *("import", "kafka-log", str(GOLDEN), "--topic", topic),
        *("--config", "index.interval.bytes=100", "--paused"),
    )
    assert ran.code == 0, ran.err


def test_an_export_writes_the_imported_files_again(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    imported(cli, "again")
    # Producers whose records are as old as these are forgotten at a load.
    assert cli("topics", "unload", "again").code == 0
    log = logs.describe("again")
    assert (log.log_end_offset, log.last_stable_offset, log.checkpoint) == (101, 100, 99)
    folder = tmp_path / "again-0"
    ran = cli("export", "kafka-log", "again", str(folder), "--topic-id", "A" * 21 + "w")
    assert ran.code == 0, ran.err
    golden = {each.name: each.read_bytes() for each in GOLDEN.iterdir()}
    written = {each.name: each.read_bytes() for each in folder.iterdir()}
    # A snapshot at the end is all that is needed; the active segment's indexes grow in Kafka.
    snapshots = {each for each in golden if each.endswith(".snapshot")}
    assert set(written) - set(golden) == {
        *("partition.metadata", "00000000000000000099.index", "00000000000000000099.timeindex")
    }
    assert snapshots - set(written) == {f"{offset:020}.snapshot" for offset in (86, 92, 99)}
    for name in set(golden) & set(written):
        assert written[name] == golden[name], name
    assert written["partition.metadata"] == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw"


def test_checkpoints_of_other_partitions_are_kept(cli: Ledgerfold, tmp_path: Path) -> None:
    imported(cli, "noted")
    path = tmp_path / "cleaner-offset-checkpoint"
    path.write_text("0\n2\nother 3 7\nnoted 0 1\n")
    ran = cli("export", "kafka-log", "noted", str(tmp_path / "noted-0"), "--checkpoints")
    assert ran.code == 0, ran.err
    assert path.read_text() == "0\n2\nother 3 7\nnoted 0 99\n"
    ends = tmp_path / "recovery-point-offset-checkpoint"
    assert ends.read_text() == "0\n1\nnoted 0 101\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"


def test_a_log_start_that_needs_a_checkpoint_file_is_reported(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    """Otherwise, deleted records would silently reappear."""
    imported(cli, "started")
    logs.take_over_log_start("started", 90)
    ran = cli("export", "kafka-log", "started", str(tmp_path / "started-0"))
    assert ran.code == 0, ran.err
    assert "Kafka does not get the log start offset 90" in ran.err
    again = cli("export", "kafka-log", "started", str(tmp_path / "started-1"), "--checkpoints")
    assert "log start offset" not in again.err


def test_invalid_destinations_are_refused(cli: Ledgerfold, tmp_path: Path) -> None:
    imported(cli, "where")
    for name in ("noname", "a b-0", "..-0", f"{'a' * 250}-0", "a-99999999999"):
        ran = cli("export", "kafka-log", "where", str(tmp_path / name), "--checkpoints")
        assert (ran.code, "the name must be TOPIC-PARTITION" in ran.err) == (2, True), ran.err
    (tmp_path / "where-0").mkdir()
    assert cli("export", "kafka-log", "where", str(tmp_path / "where-0")).code == 2
    assert cli("export", "kafka-log", "where", str(tmp_path / "w-0"), "--topic-id", "x").code == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["where-0"]


def test_unreadable_checkpoints_are_refused(cli: Ledgerfold, tmp_path: Path) -> None:
    """They are seen before anything is written."""
    imported(cli, "unread")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("nonsense")
    ran = cli("export", "kafka-log", "unread", str(tmp_path / "unread-0"), "--checkpoints")
    assert (ran.code, "recovery-point-offset-checkpoint is damaged" in ran.err) == (6, True)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failure_at_the_end_leaves_nothing(tmp_path: Path) -> None:
    """Examples are a full disk or, here, a folder that another process creates meanwhile."""
    folder = tmp_path / "late-0"
    writer = FolderWriter(folder, topic_id=UUID(int=7))
    writer.__enter__()
    writer.begin_segment(0)
    writer.end_segment(modified_ms=0)
    (folder / "other").mkdir(parents=True)
    with pytest.raises(DiskFailure):
        writer.__exit__(None, None, None)
    assert [each.name for each in tmp_path.iterdir()] == ["late-0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_export_that_is_interrupted_while_it_pauses_the_cleaner_resumes_it(
    cli: Ledgerfold,
    logs: KafkaLogs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """Exports had been interrupted later only: the broker had paused the log, for good."""
    topic, pause = f"early-{number}", logs.pause_cleaning
    imported(cli, topic)
    before = logs.describe(topic).cleaning_state

    def interrupted(name: str) -> str:
        signal.raise_signal(number)
        return pause(name)

    monkeypatch.setattr(logs, "pause_cleaning", interrupted)
    folder = tmp_path / f"{topic}-0"
    with pytest.raises(KeyboardInterrupt):
        export_folder(logs, topic, folder, topic_id=UUID(int=1))
    assert (logs.describe(topic).cleaning_state, folder.exists()) == (before, False)


def test_imported_messages_are_explained(cli: Ledgerfold) -> None:
    imported(cli, "told")
    by_key = cli("explain", "told", "--key", "open", "-o", "jsonl")
    assert by_key.code == 0, by_key.err
    (told,) = by_key.rows
    assert (told["id"], told["what"]) == ("0:100", "in the active segment")
    assert "There is nothing to clean: all offsets below 99 are clean." in by_key.err
    (gone,) = cli("explain", "told", "--offset", "1", "-o", "jsonl").rows
    assert gone["what"] == "removed by a cleaning"
    assert cli("explain", "told", "--offset", "-1").code == 2
