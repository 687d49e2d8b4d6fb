"""Truncating a topic, and disabling its compaction, on a disk that fails or loses data at each
call.

Each time, another disk or metadata call fails. In each case the state is unchanged, or the
requested one; no unreferenced file remains; and a repetition succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from ledgerfold.broker.topics.operations import disable_compaction, truncate_topic
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import LedgerfoldError
from tests.crash.test_failing_compaction import History
from tests.model.broker_lab import TOPIC
from tests.model.log_model import Read
from tests.support.lossy_files import TAILS, Tail

Operation = Callable[[History], None]


def truncate(history: History) -> None:
    lab = history.lab
    lab.run(truncate_topic(lab.broker, TOPIC))


def disable(history: History) -> None:
    lab = history.lab
    if lab.topic.record.compaction_cursor:
        lab.run(disable_compaction(lab.broker, TOPIC))


def reads(history: History) -> tuple[list[Read], list[Read]]:
    lab = history.lab
    return (
        lab.read(EARLIEST, read_compacted=True),
        lab.read(EARLIEST, read_compacted=False),
    )


def calls_of(operation: Operation) -> int:
    history = History()
    before = len(history.lab.files.calls)
    operation(history)
    calls = len(history.lab.files.calls) - before
    history.lab.stop()
    return calls


CASES = [
    pytest.param(operation, number, id=f"{operation.__name__}-{number}")
    for operation in (truncate, disable)
    for number in range(1, calls_of(operation) + 1)
]


def meant(operation: Operation) -> tuple[list[Read], list[Read]]:
    """Returns the result of reading without failures."""
    history = History()
    operation(history)
    found = reads(history)
    history.lab.stop()
    return found


def check(history: History, operation: Operation, before: tuple[list[Read], list[Read]]) -> None:
    expected = meant(operation)
    assert reads(history) in (before, expected)
    history.check_files()
    operation(history)
    assert reads(history) == expected
    history.lab.restart()
    assert reads(history) == expected
    history.check_files()
    history.lab.stop()


@pytest.mark.parametrize(("operation", "number"), CASES)
def test_the_nth_call_fails(operation: Operation, number: int) -> None:
    """The broker continues; a restart finds everything in order."""
    history = History()
    before = reads(history)
    history.lab.files.fail_at(number)
    with suppress(LedgerfoldError):
        operation(history)
    history.lab.restart()
    check(history, operation, before)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(("operation", "number"), CASES)
def test_the_power_fails_after_the_nth_call(operation: Operation, number: int, tail: Tail) -> None:
    history = History()
    before, lab = reads(history), history.lab
    work = truncate_topic if operation is truncate else disable_compaction
    lab.files.crash_at(number)
    lab.run_until_crash(work(lab.broker, TOPIC))
    lab.crash(tail)
    check(history, operation, before)
