"""Producer ids that a log brings from another cluster, or another data directory.

Until these tests no test appended with an id that the broker assigned to a log that had foreign
batches: such a record was taken for a duplicate, acknowledged and not stored.
"""

from __future__ import annotations

import errno

import pytest

from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.storage.errors import DiskFailure, KafkaError
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.support.archives import copy_topic
from tests.support.kafka_lab import KafkaLab

A, B = (b"a", b"1"), (b"b", b"2")


def add_foreign(lab: KafkaLab, producer_id: int = 0, base_offset: int = 0) -> None:
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    lab.add([A], origin=Origin.REPLICATION, base_offset=base_offset, **fields)


def add_own(lab: KafkaLab) -> list[tuple[int, int]]:
    """As a client's next idempotent producer."""
    producer_id = lab.metadata.producer_ids.allocate()
    return lab.add([B], producer_id=producer_id, producer_epoch=0, base_sequence=0)


def test_a_record_after_a_followed_log_is_stored() -> None:
    lab = KafkaLab({"cleanup.policy": "compact"})
    add_foreign(lab)
    assert add_own(lab) == [(1, 1)]
    assert lab.records() == [(0, *A), (1, *B)]
    lab.close()


def test_ids_stay_skipped_after_a_crash() -> None:
    lab = KafkaLab({"cleanup.policy": "compact"})
    add_foreign(lab)
    lab.crash()
    assert add_own(lab) == [(1, 1)]
    lab.close()


@pytest.mark.parametrize("producer_id", [2**62 - 1, 2**62, 2**63 - 1001, 2**63 - 1])
def test_a_log_with_the_largest_ids_is_followed(producer_id: int) -> None:
    lab = KafkaLab({"cleanup.policy": "compact"})
    add_foreign(lab, producer_id)
    assert lab.records() == [(0, *A)]
    lab.close()


def test_a_damaged_batch_skips_no_ids() -> None:
    lab = KafkaLab({"cleanup.policy": "compact"})
    batch = bytearray(lab.batch([A], producer_id=9, producer_epoch=0, base_sequence=0))
    batch[43] = 1
    with pytest.raises(KafkaError):
        lab.run(lab.kafka.append_batches(bytes(batch), Origin.REPLICATION))
    assert lab.metadata.producer_ids.allocate() == 0
    lab.close()


def test_the_producers_of_an_archive_keep_their_ids() -> None:
    """An archive contains the log, but not the ids that its directory has assigned."""
    source = KafkaLab({"cleanup.policy": "compact"})
    assert add_own(source) == [(0, 0)]
    source.stop()
    lab = BrokerLab()
    lab.stop()
    copy_topic(source, lab)
    copy = KafkaLab.__new__(KafkaLab)
    copy.resume(lab.files, lab._pairs)
    assert copy.records() == [(0, *B)]
    assert add_own(copy) == [(1, 1)]
    copy.close()


def test_a_log_whose_ids_cannot_be_skipped_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = KafkaLab({"cleanup.policy": "compact"})
    lab.add([A], producer_id=0, producer_epoch=0, base_sequence=0)
    monkeypatch.setattr(lab.metadata.producer_ids, "skip", _full)
    with pytest.raises(DiskFailure):
        lab.run(lab.broker.unload_topic(TOPIC))
    assert lab.records() == [(0, *A)]
    with pytest.raises(DiskFailure):
        lab.add([B])
    lab.close()


def _full(producer_id: int) -> None:
    raise DiskFailure("metadata", "Writing", OSError(errno.ENOSPC, "No space left on device"))
