"""Pauses of cleanings by an administrator, across loads, starts and full disks.

Until these tests no pause had met a start of the broker, which forgot it: the rest of an import
went to a log that had been cleaned meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from ledgerfold.broker.kafka.cleaner.states import Paused
from ledgerfold.broker.topics.kafka_settings import pause_cleaning, resume_cleaning
from ledgerfold.storage.errors import DiskFailure, InvalidRequest
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab

A = (b"a", b"1")


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    lab.add([A], [A])
    lab.run(lab.kafka.roll())
    lab.add([A])
    yield lab
    lab.close()


def pause(lab: KafkaLab) -> None:
    lab.run(pause_cleaning(lab.broker.cleaner, lab.kafka))


def resume(lab: KafkaLab) -> None:
    lab.run(resume_cleaning(lab.broker.cleaner, lab.kafka))


def is_cleaned(lab: KafkaLab) -> bool:
    assert lab.kafka.failure is None
    return lab.run(lab.broker.cleaner.run_pass()).topic == TOPIC


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_paused_log_stays_paused_until_as_many_resumes(lab: KafkaLab, how: str) -> None:
    for _ in range(2):
        pause(lab)
    for _ in range(2):
        lab.restart() if how == "restart" else lab.crash()
        assert not is_cleaned(lab)
        assert lab.broker.cleaner.states.of(TOPIC) == Paused(2)
    resume(lab)
    assert not is_cleaned(lab)
    resume(lab)
    assert is_cleaned(lab)
    with pytest.raises(InvalidRequest, match="is not paused"):
        resume(lab)


def test_a_load_counts_a_stored_pause_once(lab: KafkaLab) -> None:
    pause(lab)
    lab.run(lab.broker.unload_topic(TOPIC))
    assert lab.broker.cleaner.states.of(TOPIC) == Paused(1)
    resume(lab)
    lab.run(lab.broker.unload_topic(TOPIC))
    assert is_cleaned(lab)


def test_a_topic_that_is_created_again_is_not_paused(lab: KafkaLab) -> None:
    pause(lab)
    lab.restart()
    lab.run(lab.broker.delete_topic(TOPIC, force=True))
    lab.run(lab.broker.create_topic(TOPIC, {"cleanup.policy": "compact"}))
    assert lab.kafka.record.kafka.pauses == 0
    assert lab.broker.cleaner.states.is_free(TOPIC)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_pause_on_a_full_disk_lasts_while_the_process_does(lab: KafkaLab, code: int) -> None:
    """So that a log can be exported. After any other failure the log is not paused."""
    topic = lab.kafka
    lab.files.fail_at(1, error=code)
    if code == errno.ENOSPC:
        lab.run(pause_cleaning(lab.broker.cleaner, topic))
        assert lab.broker.cleaner.states.of(TOPIC) == Paused(1)
        lab.run(resume_cleaning(lab.broker.cleaner, topic))
    else:
        with pytest.raises(DiskFailure):
            lab.run(pause_cleaning(lab.broker.cleaner, topic))
    assert is_cleaned(lab)


def test_a_pause_on_a_full_disk_ends_no_stored_one(lab: KafkaLab) -> None:
    """Full disks had met logs that were not paused: an export ended the pause of another
    administrator at the next start, and failed while the disk stayed full.
    """
    pause(lab)
    topic = lab.kafka
    lab.files.fail_at(1, error=errno.ENOSPC)
    lab.run(pause_cleaning(lab.broker.cleaner, topic))
    assert lab.broker.cleaner.states.of(TOPIC) == Paused(2)
    lab.files.fail_at(1, error=errno.ENOSPC)
    lab.run(resume_cleaning(lab.broker.cleaner, topic))
    lab.files.fail_at(0)
    lab.restart()
    assert not is_cleaned(lab)
    assert lab.broker.cleaner.states.of(TOPIC) == Paused(1)
    resume(lab)
    assert is_cleaned(lab)
