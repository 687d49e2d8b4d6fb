"""`import kafka-log`: a folder's segments, offsets and times as a topic's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ledgerfold.broker.cli.data.import_kafka import import_folder
from ledgerfold.broker.cli.units import kafka_settings_of
from ledgerfold.broker.client.administration.kafka_logs import KafkaLogs
from ledgerfold.storage.errors import InvalidRequest, KafkaError, TopicNotFound, Unavailable
from ledgerfold.storage.kafka.folder import log_file_name
from ledgerfold.storage.kafka.records import (
    ControlType,
    KafkaRecord,
    build_batch,
    end_marker,
)
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction, aborted_bytes
from ledgerfold.v1 import kafka_pb2
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


def test_segments_offsets_with_gaps_and_times_are_imported(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
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
        assert told(logs, "gaps") == [*expected, (90, 0, 1_000_090)]
        assert (log.log_start_offset, log.log_end_offset, log.checkpoint) == (9, 90, 30)
        assert list(logs.batches("gaps")) == [batch(8), batch(12), batch(33)]
        assert cli("topics", "unload", "gaps").code == 0


def test_segments_end_only_where_the_folders_do(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    """However old its records are; the next append continues the last segment, or ends it."""
    folder = make(tmp_path / "kept-0", {0: [0, 1, 2, 3]})
    ran = cli("import", "kafka-log", str(folder), "--config", "segment.ms=1")
    assert ran.code == 0, ran.err
    assert [base for base, _, _ in told(logs, "kept")] == [0]


def test_an_empty_active_segment_has_the_time_of_its_file(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    """Also after a reload, until something is appended; for a segment created here, its creation
    time.
    """
    folder = make(tmp_path / "idle-0", {0: []})
    assert cli("import", "kafka-log", str(folder)).code == 0
    for _ in range(3):
        assert told(logs, "idle") == [(0, 0, 1_000_000)]
        assert cli("topics", "unload", "idle").code == 0
    assert cli("produce", "idle", "-k", "a", "-m", "1").code == 0
    assert cli("topics", "roll", "idle").code == 0
    (_, (base, size, modified_ms)) = told(logs, "idle")
    assert (base, size) == (1, 0)
    assert modified_ms > 1_700_000_000_000
    assert cli("topics", "unload", "idle").code == 0
    assert told(logs, "idle")[1] == (1, 0, modified_ms)


def test_a_too_wide_segment_is_split(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    """The output reports it, and the split log can be exported."""
    far = 2**31
    folder = make(tmp_path / "wide-0", {0: [0, 1, far], 3 * far: [3 * far]})
    ran = cli("import", "kafka-log", str(folder))
    assert ran.code == 0, ran.err
    assert f"it is split at {far}, as Kafka's cleaner would" in ran.err
    sizes = 2 * len(batch(0)), len(batch(far)), len(batch(3 * far))
    assert [each[:2] for each in told(logs, "wide")] == [
        *zip((0, far, 3 * far), sizes, strict=True)
    ]
    ran = cli("export", "kafka-log", "wide", str(tmp_path / "out" / "wide-0"))
    assert ran.code == 0, ran.err


def test_an_append_beyond_the_offset_range_of_a_segment_is_refused(logs: KafkaLogs) -> None:
    logs.create("narrow", {"cleanup.policy": "compact"})
    logs.take_over("narrow", batch(0), append_time_ms=1)
    with pytest.raises(KafkaError, match=r"begins at 0: its offsets end at 2147483647\. Begin"):
        logs.take_over("narrow", batch(2**31), append_time_ms=1)
    logs.begin_segment("narrow", 2**31)
    logs.take_over("narrow", batch(2**31), append_time_ms=1)


def transaction(offset: int, *, is_marked: bool) -> bytes:
    """A record of producer 7's transaction, or the marker that aborts it."""
    if is_marked:
        return end_marker(
            ControlType.ABORT, base_offset=offset, producer_id=7, producer_epoch=0, timestamp_ms=5
        )
    record = KafkaRecord(offset, 1000, b"k", b"v")
    return build_batch(
        [record],
        base_offset=offset,
        is_transactional=True,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )


LINE = AbortedTransaction(producer_id=7, first_offset=1, last_offset=5, last_stable_offset=6)


@pytest.mark.parametrize("is_active", [False, True])
@pytest.mark.parametrize("has_data", [False, True])
def test_the_aborted_index_is_imported_completely(
    cli: Ledgerfold,
    logs: KafkaLogs,
    tmp_path: Path,
    is_active: bool,
    has_data: bool,
) -> None:
    """A cleaning removed the first records of a transaction, or all: its marker does not contain
    the first offset."""
    name = f"index-{int(is_active)}{int(has_data)}"
    folder = make(tmp_path / f"{name}-0", {0: [0]} if is_active else {0: [0], 9: [9]})
    data = transaction(3, is_marked=False) if has_data else b""
    path = folder / log_file_name(0)
    path.write_bytes(batch(0) + data + transaction(5, is_marked=True))
    elsewhere = AbortedTransaction(7, 20, 30, 31)
    index = aborted_bytes([LINE, elsewhere])
    (folder / log_file_name(0, "txnindex")).write_bytes(index)
    ran = cli("import", "kafka-log", str(folder))
    assert ran.code == 0, ran.err

    def aborted() -> list[AbortedTransaction]:
        return [
            AbortedTransaction(
                each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset
            )
            for each in logs.describe(name).aborted
        ]

    assert aborted() == [LINE]
    assert cli("topics", "unload", name).code == 0
    assert aborted() == [LINE]
    out = tmp_path / "out" / f"{name}-0"
    assert cli("export", "kafka-log", name, str(out)).code == 0
    assert (out / log_file_name(0, "txnindex")).read_bytes() == aborted_bytes([LINE])


def test_a_file_that_is_no_transaction_index_is_reported(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    folder = make(tmp_path / "noindex-0", {0: [0]})
    (folder / log_file_name(0, "txnindex")).write_bytes(b"nonsense")
    ran = cli("import", "kafka-log", str(folder))
    assert (ran.code, "is not a transaction index" in ran.err) == (0, True), ran.err
    assert not logs.describe("noindex").aborted


def test_an_index_of_other_offsets_is_refused(logs: KafkaLogs) -> None:
    logs.create("otherindex", {"cleanup.policy": "compact"})
    logs.take_over("otherindex", batch(0), append_time_ms=1)
    for line, why in (
        (LINE, "not in the active segment"),
        (AbortedTransaction(7, 3, 1, 2), "is not an aborted"),
    ):
        told = [kafka_pb2.KafkaAbortedInfo(**line._asdict())]
        with pytest.raises(InvalidRequest, match=why):
            logs.take_over("otherindex", b"", append_time_ms=1, aborted=told)


def test_settings_come_from_a_file(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    """Options override it, and without either the output names the defaults."""
    shown = tmp_path / "orders.txt"
    shown.write_text(
        "Dynamic configs for topic orders are:\n"
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
        "cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  segment.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=5}\n"
        "  retention.ms=7 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.ms=7}\n"
    )
    folder = make(tmp_path / "filed-0", {0: [0]})
    at = ("import", "kafka-log", str(folder))
    ran = cli(*at, "--config-file", str(shown), "--config", "segment.ms=6")
    assert (ran.code, "a partition folder contains none" in ran.err) == (0, False), ran.err
    config = {name: each for name, each in logs.config("filed").items() if each.source == "topic"}
    assert {name: each.value for name, each in config.items()} == {
        "cleanup.policy": "compact,delete",
        "segment.ms": "6",
    }
    ran = cli(*at, "--topic", "unfiled")
    assert "unfiled has cleanup.policy=compact and this broker's" in ran.err
    shown.write_text("nothing\n\n")
    assert cli(*at, "--topic", "refused", "--config-file", str(shown)).code != 0
    assert cli(*at, "--topic", "refused", "--config-file", str(tmp_path / "none")).code == 3
    shown.write_text("# nothing\n")
    ran = cli(*at, "--topic", "refused", "--config-file", str(shown))
    assert (ran.code, "has no topic settings" in ran.err) == (2, True)


def test_a_torn_tail_is_reported(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    folder = make(tmp_path / "torn-0", {0: [0], 1: [1, 2]})
    path = folder / log_file_name(1)
    path.write_bytes(path.read_bytes()[:-5])
    ran = cli("import", "kafka-log", str(folder))
    assert ran.code == 0, ran.err
    assert "of an incomplete append" in ran.err
    assert logs.describe("torn").log_end_offset == 2


def test_a_damaged_log_is_not_imported_in_part(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    folder = make(tmp_path / "half-0", {0: [0, 1], 2: [2]})
    path = folder / log_file_name(0)
    path.write_bytes(path.read_bytes()[:-5])
    ran = cli("import", "kafka-log", str(folder))
    assert ran.code == 6, ran.err
    assert "00000000000000000000.log is damaged at byte" in ran.err
    assert "stopped in segment 1 of 2, after 1 batch. half was deleted again" in ran.err
    with pytest.raises(TopicNotFound):
        logs.describe("half")


def test_a_log_whose_start_is_after_its_end(
    cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path
) -> None:
    """Kafka loads it as empty; it continues at its start."""
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


def test_a_negative_checkpoint_is_ignored(cli: Ledgerfold, logs: KafkaLogs, tmp_path: Path) -> None:
    folder = make(tmp_path / "below-0", {0: [0, 1]})
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nbelow 0 -4\n")
    ran = cli("import", "kafka-log", str(folder))
    assert (ran.code, "no checkpoint" in ran.err) == (0, True), ran.err
    assert not logs.describe("below").HasField("checkpoint")


def test_a_broker_that_ends_during_the_import(
    logs: KafkaLogs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Shows the cause, and files that could not be removed."""

    def gone(why: str) -> Callable[..., NoReturn]:
        def call(*_: object, **__: object) -> NoReturn:
            raise Unavailable(why)

        return call

    monkeypatch.setattr(logs, "take_over", gone("in the midst"))
    monkeypatch.setattr(logs, "delete", gone("still"))
    folder = make(tmp_path / "dying-0", {0: [0]})
    with pytest.raises(Unavailable, match="in the midst"):
        import_folder(logs, folder, "dying", {"cleanup.policy": "compact"})
    assert "A part of dying may be left" in capsys.readouterr().err


def test_an_import_that_is_interrupted_at_its_end_leaves_no_topic(
    logs: KafkaLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test had interrupted the last call: a whole topic was left, whose cleaning stayed paused.

    It said nothing, and no restart of the broker ended the pause.
    """

    def interrupted(topic: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(logs, "resume_cleaning", interrupted)
    folder = make(tmp_path / "late-0", {0: [0]})
    with pytest.raises(KeyboardInterrupt):
        import_folder(logs, folder, "late", {"cleanup.policy": "compact"})
    with pytest.raises(TopicNotFound):
        logs.describe("late")


def test_options_that_do_not_fit_the_input_are_refused(cli: Ledgerfold, tmp_path: Path) -> None:
    assert cli("import", "kafka-log").code == 2
    assert cli("import", "kafka-log", str(tmp_path), "--key", "id").code == 2
    assert cli("import", str(tmp_path / "a.csv"), "--key", "id", "--config", "a=b").code == 2
    assert cli("import", str(tmp_path / "a.csv")).code == 2
    with pytest.raises(InvalidRequest):
        kafka_settings_of(["segment.ms"])
    with pytest.raises(InvalidRequest, match="set twice"):
        kafka_settings_of(["segment.ms=1", "segment.ms = 2"])


def test_a_segment_cannot_begin_below_the_end(logs: KafkaLogs) -> None:
    logs.create("ends", {"cleanup.policy": "compact"})
    logs.take_over("ends", batch(5), append_time_ms=1)
    with pytest.raises(KafkaError, match="cannot begin at 5: the log's end is 6"):
        logs.begin_segment("ends", 5)
    assert logs.begin_segment("ends", 6) == 6
    assert logs.begin_segment("ends", 6) == 6
    assert logs.begin_segment("ends", 9) == 9
