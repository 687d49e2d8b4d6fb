"""Whole rounds over real files, without Spark: the worked examples, batch by batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.storage.kafka.batch import check_batch
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import (
    ControlType,
    KafkaRecord,
    build_batch,
    end_marker,
    marker_type,
    records_of,
)
from ledgerfold.v1.records_pb2 import AbortedTransaction
from tests.support.kafka_golden import NOW_MS, golden
from tests.support.kafka_log import DAY_MS, KafkaLog


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    return KafkaLog(tmp_path)


def test_basic(log: KafkaLog) -> None:
    """One segment named 0, a gap at its start, the checkpoint at the active segment."""
    log.write("0:A=a0 1:B=b0 2:A=a1 3:C=c0 | 4:B=b1 5:A=a2 6:D=d0 |")
    manifest = log.clean()
    assert log.text() == "3:C=c0 4:B=b1 5:A=a2 6:D=d0"
    (group,) = manifest.groups
    assert (group.base_offset, group.next_offset, group.source_segments) == (0, 7, 2)
    assert log.checkpoint == 7


def test_a_tombstone_is_kept_for_its_retention(log: KafkaLog) -> None:
    """It gets its horizon at the first copy and is removed at that millisecond."""
    log.write("0:A=v 1:A 2:Z=1 |")
    log.clean(time_ms=1_000)
    assert log.text() == f"1:A~{1_000 + DAY_MS} 2:Z=1"
    log.write("3:Y=1 |")
    log.clean(time_ms=DAY_MS + 999)
    assert log.text() == f"1:A~{1_000 + DAY_MS} 2:Z=1 3:Y=1"
    log.write("4:Y=2 |")
    log.clean(time_ms=DAY_MS + 1_000)
    assert log.text() == "2:Z=1 4:Y=2"


@pytest.mark.parametrize("compression", [KafkaCompression.NONE, KafkaCompression.GZIP])
def test_a_tombstone_with_the_longest_retention_stays(
    log: KafkaLog, compression: KafkaCompression
) -> None:
    """No other test had a retention whose sum with the present exceeds 64 bits."""
    log.settings["delete_retention_ms"] = 2**63 - 1
    log.write("0:A=v [1:A 2:Z=1] |", compression=compression)
    before = log.batches()[1]
    for time_ms in (1, 2, 3):
        log.clean(time_ms=time_ms)
        assert log.batches()[0] == before
        log.write(f"{time_ms + 2}:Y=1 |")


def test_a_marker_with_the_longest_retention_stays(log: KafkaLog) -> None:
    log.settings["delete_retention_ms"] = 2**63 - 1
    fields = {"base_offset": 0, "timestamp_ms": 9, "producer_id": 7, "producer_epoch": 0}
    log.add(end_marker(ControlType.COMMIT, **fields))
    log.producers.clear()
    log.roll()
    for time_ms in (1, 2, 3):
        log.write(f"{time_ms}:Y={time_ms} |")
        log.clean(time_ms=time_ms)
        assert log.text() == f"0:marker {time_ms}:Y={time_ms}"


def test_the_largest_delete_horizon_is_set(log: KafkaLog) -> None:
    log.settings["delete_retention_ms"] = 2**63 - 2
    log.write("0:A |")
    log.clean(time_ms=1)
    assert log.text() == f"0:A~{2**63 - 1}"


def test_the_map_fills(log: KafkaLog) -> None:
    """A round that removes nothing still advances."""
    log.write("0:k0=1 1:k1=1 2:k0=2 3:k1=2 4:k2=1 |")
    log.settings["keys_max"] = 2
    log.clean()
    assert (log.checkpoint, log.text()) == (2, "0:k0=1 1:k1=1 2:k0=2 3:k1=2 4:k2=1")
    log.clean()
    assert (log.checkpoint, log.text()) == (4, "2:k0=2 3:k1=2 4:k2=1")
    log.clean()
    assert (log.checkpoint, log.text()) == (5, "2:k0=2 3:k1=2 4:k2=1")


def test_a_full_map_ends_the_reading_at_the_record_without_room(log: KafkaLog) -> None:
    """Keyless records before it are read, too; none after it."""
    log.write("0:a=1 | [1:b=1 2:=x 3:c=1 4:=y] |")
    log.settings["keys_max"] = 2
    manifest = log.clean()
    assert (manifest.stats.map_messages_read, log.checkpoint) == (3, 2)


def test_the_map_counts_from_the_batch_of_the_first_dirty_offset(
    log: KafkaLog,
) -> None:
    log.write("0:a=1 [1:b=1 2:=x 3:c=1] 4:d=1 |")
    log.checkpoint = 3
    assert log.clean().stats.map_messages_read == 4


def test_the_map_stops_inside_a_batch(log: KafkaLog) -> None:
    """A batch that lost its first record still spans it."""
    log.write("[0:a=1 1:b=1 2:c=1 3:a=2] 4:b=2 |")
    log.settings["keys_max"] = 2
    log.clean()
    assert (log.checkpoint, log.text()) == (2, "0..3[0:a=1 1:b=1 2:c=1 3:a=2] 4:b=2")
    log.clean()
    assert (log.checkpoint, log.text()) == (4, "0..3[1:b=1 2:c=1 3:a=2] 4:b=2")
    log.clean()
    assert (log.checkpoint, log.text()) == (5, "0..3[2:c=1 3:a=2] 4:b=2")


def test_the_last_batch_of_a_cleaning_keeps_its_header(log: KafkaLog) -> None:
    """Until it is no longer the last one."""
    log.write("0:a=1 1:=none |")
    manifest = log.clean()
    assert log.text() == "0:a=1 1:{}"
    assert manifest.stats.invalid_messages_read == 1
    log.write("2:b=1 |")
    log.clean()
    assert log.text() == "0:a=1 2:b=1"


def test_the_last_batch_of_a_producer_keeps_its_header(log: KafkaLog) -> None:
    """Batches keep their ends, and so their sequences, as long as a producer is remembered."""
    log.write("[0:1=a 1:2=a 2:3=a]", producer_id=1, producer_epoch=0, base_sequence=0)
    log.write("[3:3=b 4:1=b 5:4=b]", producer_id=2, producer_epoch=0, base_sequence=0)
    log.write("[6:1=c 7:4=c] |", producer_id=3, producer_epoch=0, base_sequence=0)
    log.clean()
    assert log.text() == "0..2[1:2=a] 3..5[3:3=b] 6..7[6:1=c 7:4=c]"
    log.write("8:2=d |", producer_id=4, producer_epoch=0, base_sequence=0)
    log.clean()
    assert log.text() == "2:{} 3..5[3:3=b] 6..7[6:1=c 7:4=c] 8:2=d"
    del log.producers[1]
    log.write("9:9=d |")
    log.clean()
    assert log.text() == "3..5[3:3=b] 6..7[6:1=c 7:4=c] 8:2=d 9:9=d"


@pytest.mark.parametrize(("name", "of"), [("header", "horizon"), ("lz4 header", "lz4")])
def test_a_batch_without_records_is_kept_byte_for_byte(log: KafkaLog, name: str, of: str) -> None:
    """As Kafka's classes do: without horizon and codec; the next round leaves the same."""
    log.add(golden(of))
    log.add(golden("commit"))
    superseding = [KafkaRecord(302 + n, 0, key, b"v") for n, key in enumerate((b"a", b"b", b""))]
    log.add(build_batch(superseding, base_offset=302))
    log.roll()
    log.clean()
    alone = log.batches()[0]
    assert alone == golden(name)
    header = check_batch(alone)
    assert (len(alone), header.record_count, header.base_timestamp_ms) == (61, 0, -1)
    assert (header.delete_horizon_ms, header.compression) == (None, KafkaCompression.NONE)
    assert header.last_sequence == check_batch(golden(of)).last_sequence
    assert list(records_of(alone)) == []
    assert marker_type(alone) is None
    log.write("400:c=1 |")
    log.clean()
    assert log.batches()[0] == alone


@pytest.mark.parametrize(
    ("name", "of", "superseded"),
    [
        ("tombstone, horizon", "none", [b"a", b""]),
        ("horizon kept", "horizon", [b""]),
        ("commit, horizon", "commit", []),
    ],
)
def test_batches_are_rebuilt_byte_for_byte(
    log: KafkaLog, name: str, of: str, superseded: list[bytes]
) -> None:
    """As Kafka's classes do. A marker whose data are all removed gets its horizon."""
    log.add(golden(of))
    if superseded:
        log.add(golden("commit"))
    later = [KafkaRecord(302 + n, 0, key, b"v") for n, key in enumerate([*superseded, b"z"])]
    log.add(build_batch(later, base_offset=302))
    log.roll()
    log.clean(time_ms=NOW_MS)
    assert log.batches()[0] == golden(name)


def _marker(log: KafkaLog, offset: int, producer_id: int, kind: ControlType) -> None:
    fields = {"base_offset": offset, "producer_id": producer_id, "producer_epoch": 0}
    log.add(end_marker(kind, timestamp_ms=0, **fields))


def _transactional(log: KafkaLog, text: str, producer_id: int, sequence: int = 0) -> None:
    log.write(
        text,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def test_an_aborted_write_replaces_nothing(log: KafkaLog) -> None:
    """Its header stays as long as its producer is remembered, and so do its marker and its line."""
    log.write("0:k=old")
    _transactional(log, "1:k=x", 9)
    _marker(log, 2, 9, ControlType.ABORT)
    log.write("3:x=1 |")
    line = AbortedTransaction(producer_id=9, first_offset=1, last_offset=2, last_stable_offset=3)
    log.aborted = [line]
    manifest = log.clean()
    assert log.text() == "0:k=old 1:{} 2:marker 3:x=1"
    assert list(manifest.groups[0].aborted) == [line]
    log.producers.clear()
    log.write("4:y=1 |")
    manifest = log.clean(time_ms=2_000)
    # Its batch was met in this round, too.
    assert log.text() == "0:k=old 2:marker 3:x=1 4:y=1"
    log.write("5:y=1 |")
    manifest = log.clean(time_ms=3_000)
    assert log.text() == f"0:k=old 2:marker~{3_000 + DAY_MS} 3:x=1 5:y=1"
    assert not manifest.groups[0].aborted


def test_a_lost_marker_still_ends_its_transaction(log: KafkaLog) -> None:
    """By a repair. The next one's is no marker without data."""
    log.write("0:k=old")
    _transactional(log, "1:k=x", 9)
    _transactional(log, "3:A=1", 9, 1)
    _marker(log, 4, 9, ControlType.COMMIT)
    log.write("5:Z=1 |")
    log.aborted = [
        AbortedTransaction(producer_id=9, first_offset=1, last_offset=2, last_stable_offset=3)
    ]
    log.settings["delete_retention_ms"] = 100
    manifest = log.clean(time_ms=0)
    assert log.text() == "0:k=old 3:A=1 4:marker 5:Z=1"
    assert not manifest.groups[0].aborted


def test_a_marker_reduced_to_its_header_is_mapped_as_a_message(log: KafkaLog) -> None:
    """The map contains it again after a checkpoint was set back."""
    log.settings["delete_retention_ms"] = 0
    log.write("0:a=1")
    _marker(log, 1, 1, ControlType.COMMIT)
    log.write("2:b=1 |")
    log.clean()
    log.write("3:c=1 |")
    log.clean()
    assert log.text() == "0:a=1 1:{} 2:b=1 3:c=1"
    log.checkpoint = 0
    assert log.clean().stats.map_messages_read == 4


def test_when_a_marker_is_removed(log: KafkaLog) -> None:
    """It has no horizon while its data exist, gets one afterwards, and is removed then; unless data
    live.
    """
    _transactional(log, "0:A=1", 1)
    _marker(log, 1, 1, ControlType.COMMIT)
    _transactional(log, "2:A=2", 1, 1)
    _marker(log, 3, 1, ControlType.COMMIT)
    log.write("|")
    log.settings["delete_retention_ms"] = 100
    log.clean(time_ms=0)
    assert log.text() == "1:marker 2:A=2 3:marker"
    log.write("4:Z=1 |")
    log.clean(time_ms=10)
    assert log.text() == "1:marker~110 2:A=2 3:marker 4:Z=1"
    log.write("5:Y=1 |")
    log.clean(time_ms=109)
    assert log.text() == "1:marker~110 2:A=2 3:marker 4:Z=1 5:Y=1"
    log.write("6:X=1 |")
    log.clean(time_ms=110)
    assert log.text() == "2:A=2 3:marker 4:Z=1 5:Y=1 6:X=1"


def test_zero_retention_takes_two_cleanings(log: KafkaLog) -> None:
    """In the same millisecond."""
    log.write("0:k=v 1:k 2:o=x |")
    log.settings["delete_retention_ms"] = 0
    log.clean(time_ms=500)
    assert log.text() == "1:k~500 2:o=x"
    log.write("3:p=1 |")
    log.clean(time_ms=500)
    assert log.text() == "2:o=x 3:p=1"


def test_tombstones_of_a_batch_share_its_horizon(log: KafkaLog) -> None:
    """The batch keeps it when they are removed."""
    log.write("0:a=1 [1:a 2:b=v 3:c] 4:z=1 |")
    log.settings["delete_retention_ms"] = 100
    log.clean(time_ms=0)
    assert log.text() == "1..3[1:a 2:b=v 3:c]~100 4:z=1"
    log.write("5:c=back |")
    log.clean(time_ms=50)
    assert log.text() == "1..3[1:a 2:b=v]~100 4:z=1 5:c=back"
    log.write("6:y=1 |")
    log.clean(time_ms=100)
    assert log.text() == "1..3[2:b=v]~100 4:z=1 5:c=back 6:y=1"


def test_a_tombstone_after_the_clean_point_gets_its_horizon(log: KafkaLog) -> None:
    """A round early."""
    log.write("0:a=1 1:b=1 2:c 3:d=1 |")
    log.clean(keys_max=2, time_ms=1_000)
    assert (log.checkpoint, log.text()) == (2, f"0:a=1 1:b=1 2:c~{1_000 + DAY_MS} 3:d=1")


def test_statistics(log: KafkaLog) -> None:
    """The expectations are those of Kafka's test."""
    log.write("0:0=a 1:1=a 2:0=b 3:1=b 4:0=c |")
    size_bytes = log.segments[0].size_bytes
    stats = log.clean(first_dirty_offset=2, keys_max=3).stats
    assert log.checkpoint == 5
    assert (stats.messages_read, stats.messages_written) == (5, 2)
    assert (stats.bytes_read, stats.bytes_written) == (size_bytes, sum(map(len, log.batches())))
    assert stats.invalid_messages_read == 0


def test_a_dry_run_returns_the_map(log: KafkaLog) -> None:
    """The worked example, with offsets from 0; a writing round returns no map."""
    log.write("0:1001=Privet 1:1002=Baker 2:1003=Milkman |")
    assert not log.clean().map
    log.write("3:1002=Jump 4:1001=Paper 5:1001=Road |")
    told = log.clean(dry_run=True, ledger_ids=[])
    assert [(each.key, each.offset) for each in told.map] == [(b"1002", 3), (b"1001", 5)]
    assert (told.stats.map_keys, told.end_offset) == (2, 6)


def test_a_large_map_is_returned_from_the_lowest_offset(log: KafkaLog) -> None:
    """As many as a person may want."""
    log.write(" ".join(f"{at}:k{at}=1" for at in range(1_500)) + " |")
    told = log.clean(dry_run=True, ledger_ids=[], keys_max=5_000)
    assert [each.offset for each in told.map] == list(range(1_000))
    assert told.stats.map_keys == 1_500


def test_a_dry_run_counts_and_writes_nothing(log: KafkaLog) -> None:
    """The same figures, but no files."""
    log.write("0:A=a0 1:B=b0 2:A=a1 | 3:B=b1 |")
    before = sorted(log.ledgers_dir.rglob("*"))
    told = log.clean(dry_run=True, ledger_ids=[])
    assert sorted(log.ledgers_dir.rglob("*")) == before
    assert told.stats == log.clean().stats
    assert (told.end_offset, told.groups[0].batches) == (4, 2)


def test_the_same_plan_gives_the_same_bytes(log: KafkaLog) -> None:
    log.write("[0:a=1 1:b=2 2:c] [3:a=2 4:d=3] | [5:c=1 6:d] |", compression=4)
    plan = log.plan()
    log.clean(ledger_ids=[50, 51])
    first = log.batches()
    log.segments, log.checkpoint = list(plan.segments), 0
    log.clean(ledger_ids=[60, 61])
    assert log.batches() == first


def test_untouched_batches_are_copied_as_bytes(log: KafkaLog) -> None:
    """Compressed ones as well."""
    for compression in range(5):
        first = 4 * compression
        records = [KafkaRecord(n, n, b"%d" % n, b"v" * 50, ()) for n in range(first, first + 4)]
        log.add(build_batch(records, base_offset=first, compression=compression))
    log.roll()
    before = log.batches()
    log.clean()
    assert log.batches() == before


def test_a_segment_may_lie_in_several_ledgers(log: KafkaLog) -> None:
    """A restarted broker continues the active segment in another ledger."""
    log.write("0:a=1 1:b=1 | 2:a=2 |")
    first, second = log.segments
    first.files.extend(second.files)
    first.next_base_offset, first.size_bytes = 3, first.size_bytes + second.size_bytes
    log.segments = [first]
    log.clean()
    assert log.text() == "1:b=1 2:a=2"


@pytest.mark.parametrize("fails", [False, True])
def test_kafkas_full_index_ends_a_cleaning_early(log: KafkaLog, fails: bool) -> None:
    """The segment before it stays, and the next round begins where this one did."""
    log.write("0:a=1 | 1:a=2 2:b=1 3:c=1 |")
    settings = {"index_interval_bytes": 0, "index_bytes_max": 16, "log_segment_bytes": 1}
    manifest = log.clean(full_index_fails_round=fails, **settings)
    assert bool(manifest.failure) is fails
    assert len(manifest.groups) == (1 if fails else 2)
    assert log.checkpoint == (0 if fails else 4)
    assert log.text() == "1:a=2 2:b=1 3:c=1"
