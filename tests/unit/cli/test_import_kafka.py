"""`import kafka-log`: a folder's segments, offsets and times as a topic's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ledgerfold.broker.cli.import_kafka import import_folder, settings_of
from ledgerfold.broker.client.kafka_logs import KafkaLogs
from ledgerfold.storage.errors import InvalidRequest, KafkaError, TopicNotFound, Unavailable
from ledgerfold.storage.kafka.folder import log_file_name
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from tests.unit.cli.conftest import Ledgerfold


@pytest.fixture
def logs(url: str) -> Iterator[KafkaLogs]:
    with KafkaLogs(url) as logs:
        yield logs


def batch(offset: int) -> bytes:
    record = KafkaRecord(offset, 1000 + offset, b"k%d" % offset, b"v" * 40)
    return build_batch([record], base_offset=offset)


def make(folder: Path, segments: dict[int, list[int]]) -> Path:
    """Each with the time 1_000_000 + its base."""
    folder.mkdir(parents=True)
    for base, offsets in segments.items():
        path = folder / log_file_name(base)
        path.write_bytes(b"".join(map(batch, offsets)))
        os.utime(path, ns=(0, (1_000_000 + base) * 1_000_000))
    return folder


def told(logs: KafkaLogs, topic: str) -> list[tuple[int, int, int]]:
    return [
        (each.base_offset, each.size_bytes, each.modified_ms)
        for each in logs.describe(topic).segments
    ]


def test_segments_gaps_and_times(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    """The first does not begin at 0, one is empty, and the active one, too, far behind the rest."""
    folder = make(tmp_path / "gaps-3", {7: [8, 12], 20: [], 30: [33], 90: []})
    for name, offset in (("cleaner-offset-checkpoint", 30), ("log-start-offset-checkpoint", 9)):
        (tmp_path / name).write_text(f"0\n2\ngaps 0 5\ngaps 3 {offset}\n")
    ran = cli("import", "kafka-log", str(folder), "--config", "delete.retention.ms=7")
    assert ran.code == 0, ran.err
    sizes = len(batch(8) + batch(12)), 0, len(batch(33))
    expected = [*zip((7, 20, 30), sizes, (1_000_007, 1_000_020, 1_000_030), strict=True)]
    for _ in range(2):
        log = logs.describe("gaps")
        assert told(logs, "gaps")[:3] == expected
        assert [each.base_offset for each in log.segments] == [7, 20, 30, 90]
        assert (log.log_start_offset, log.log_end_offset, log.checkpoint) == (9, 90, 30)
        assert list(logs.batches("gaps")) == [batch(8), batch(12), batch(33)]
        assert cli("topics", "unload", "gaps").code == 0


def test_nothing_ends_a_segment_but_the_folder(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    """However old its records are, and the next append goes on with the last one, or ends it."""
    folder = make(tmp_path / "kept-0", {0: [0, 1, 2, 3]})
    ran = cli("import", "kafka-log", str(folder), "--config", "segment.ms=1")
    assert ran.code == 0, ran.err
    assert [base for base, _, _ in told(logs, "kept")] == [0]


def test_a_torn_tail_is_told(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    folder = make(tmp_path / "torn-0", {0: [0], 1: [1, 2]})
    path = folder / log_file_name(1)
    path.write_bytes(path.read_bytes()[:-5])
    ran = cli("import", "kafka-log", str(folder))
    assert ran.code == 0, ran.err
    assert "of an append that was not finished" in ran.err
    assert logs.describe("torn").log_end_offset == 2


def test_half_a_log_is_none(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    folder = make(tmp_path / "half-0", {0: [0, 1], 2: [2]})
    path = folder / log_file_name(0)
    path.write_bytes(path.read_bytes()[:-5])
    ran = cli("import", "kafka-log", str(folder))
    assert ran.code == 6, ran.err
    assert "00000000000000000000.log is damaged at byte" in ran.err
    assert "it came to segment 1 of 2, with 1 batch. half was deleted again" in ran.err
    with pytest.raises(TopicNotFound):
        logs.describe("half")


def test_a_log_that_starts_behind_its_end(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    """As Kafka loads it: empty, and it goes on at its start."""
    folder = make(tmp_path / "behind-0", {0: [0, 1], 2: [2]})
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nbehind 0 40\n")
    ran = cli("import", "kafka-log", str(folder))
    assert ran.code == 0, ran.err
    assert "offsets from 40 to 40, no checkpoint" in ran.err
    for _ in range(2):
        log = logs.describe("behind")
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (40, 40, 40)
        assert cli("topics", "unload", "behind").code == 0
    assert cli("produce", "behind", "-k", "a", "-m", "1", "-v").out == "0:40\n"


@pytest.mark.parametrize("text", [b"nonsense", b"0\n1\n\xff\xfe 0 3\n7\n"])
def test_a_checkpoint_that_cannot_be_read(cli: Ledgerfold, tmp_path: Path, text: bytes) -> None:
    folder = make(tmp_path / "unread-0", {0: [0]})
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(text)
    ran = cli("import", "kafka-log", str(folder))
    assert (ran.code, "cleaner-offset-checkpoint is damaged at byte" in ran.err) == (6, True)


def test_a_checkpoint_below_zero_is_none(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    folder = make(tmp_path / "below-0", {0: [0, 1]})
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nbelow 0 -4\n")
    ran = cli("import", "kafka-log", str(folder))
    assert (ran.code, "no checkpoint" in ran.err) == (0, True), ran.err
    assert not logs.describe("below").HasField("checkpoint")


def test_a_broker_that_dies_on_the_way(
    logs: KafkaLogs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What ended the import is told, and what it left that nobody could take away."""

    def gone(why: str) -> Callable[..., NoReturn]:
        def call(*_: object, **__: object) -> NoReturn:
            raise Unavailable(why)

        return call

    monkeypatch.setattr(logs, "take_over", gone("in the midst"))
    monkeypatch.setattr(logs, "delete", gone("still"))
    folder = make(tmp_path / "dying-0", {0: [0]})
    with pytest.raises(Unavailable, match="in the midst"):
        import_folder(logs, folder, "dying", {"cleanup.policy": "compact"})
    assert "Half of dying may be left" in capsys.readouterr().err


def test_what_is_not_for_a_folder(cli: Ledgerfold, tmp_path: Path) -> None:
    assert cli("import", "kafka-log").code == 2
    assert cli("import", "kafka-log", str(tmp_path), "--key", "id").code == 2
    assert cli("import", str(tmp_path / "a.csv"), "--key", "id", "--config", "a=b").code == 2
    assert cli("import", str(tmp_path / "a.csv")).code == 2
    with pytest.raises(InvalidRequest):
        settings_of(["segment.ms"])


def test_a_segment_cannot_begin_before_the_end(logs: KafkaLogs) -> None:
    logs.create("ends", {"cleanup.policy": "compact"})
    logs.take_over("ends", batch(5), append_time_ms=1)
    with pytest.raises(KafkaError, match="cannot begin at 5: the log's end is 6"):
        logs.begin_segment("ends", 5)
    assert logs.begin_segment("ends", 6) == 6
    assert logs.begin_segment("ends", 6) == 6
    assert logs.begin_segment("ends", 9) == 9
