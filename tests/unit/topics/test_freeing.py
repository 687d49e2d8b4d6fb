"""Tests that operations that free room on a full disk use the reserve."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from ledgerfold.broker.topics.freeing import retry_with_reserve
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError, TopicNotFound
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message


class Freeing:
    """Fails as set, call by call; records whether the reserve was lent then."""

    def __init__(self, lab: BrokerLab, *errors: LedgerfoldError | None) -> None:
        self._lab, self._errors = lab, errors
        self.calls = list[bool]()

    async def __call__(self) -> None:
        error = self._errors[len(self.calls)]
        self.calls.append(self._lab.store.reserve.is_lent)
        if error is not None:
            raise error


def failure(number: int) -> DiskFailure:
    return DiskFailure("metadata", "A metadata write", OSError(number, "why"))


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    lab.store.reserve.keep()
    yield lab
    lab.stop()


def test_an_operation_runs_once_if_there_is_space(lab: BrokerLab) -> None:
    """Without a full disk, no second attempt follows."""
    free = Freeing(lab, None)
    lab.run(retry_with_reserve(lab.store, free))
    assert free.calls == [False]


@pytest.mark.parametrize("second", [None, TopicNotFound("t")])
def test_on_a_full_disk_an_operation_is_repeated_with_the_reserve(
    lab: BrokerLab, second: LedgerfoldError | None
) -> None:
    """The first time may have deleted the topic already. The reserve is taken back."""
    free = Freeing(lab, failure(errno.ENOSPC), second)
    lab.run(retry_with_reserve(lab.store, free))
    assert free.calls == [False, True]
    assert lab.store.reserve.is_there


def test_files_that_a_full_disk_kept_are_removed_with_the_reserve(lab: BrokerLab) -> None:
    """The topic itself was deleted at once, by the last write that there was room for."""
    lab.publish([([Message(b"k", b"v")], False) for _ in range(14)])

    def fill(call: str) -> None:
        is_deleted = lab.metadata.topic(TOPIC) is None
        if call == "write metadata" and is_deleted and not lab.store.reserve.is_lent:
            raise failure(errno.ENOSPC)

    lab.files.during = fill
    lab.run(retry_with_reserve(lab.store, lambda: lab.broker.delete_topic(TOPIC, force=True)))
    assert lab.metadata.topic(TOPIC) is None
    assert lab.metadata.ledgers() == []
    assert lab.files.listdir(lab.store.ledgers_dir) == []


def test_a_second_failure_is_raised_and_the_reserve_renewed(lab: BrokerLab) -> None:
    free = Freeing(lab, failure(errno.ENOSPC), failure(errno.ENOSPC))
    with pytest.raises(DiskFailure):
        lab.run(retry_with_reserve(lab.store, free))
    assert lab.store.reserve.is_there


def test_failures_for_another_reason_are_not_retried(lab: BrokerLab) -> None:
    free = Freeing(lab, failure(errno.EIO))
    with pytest.raises(DiskFailure):
        lab.run(retry_with_reserve(lab.store, free))
    assert free.calls == [False]


def test_without_a_reserve_nothing_is_repeated(lab: BrokerLab) -> None:
    lab.store.reserve.empty()
    free = Freeing(lab, failure(errno.ENOSPC))
    with pytest.raises(DiskFailure):
        lab.run(retry_with_reserve(lab.store, free))
    assert free.calls == [False]
