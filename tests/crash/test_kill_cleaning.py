"""kill -9 at each named step of a cleaning by Kafka's cleaner, in the broker and in the worker.

Kafka renames files: `.cleaned`, `.swap`, `.deleted`. Here one synced write replaces the old
segments by the new ones and moves the checkpoint: before it everything is old (T76), after it
everything is new (T77), and there is nothing in between. A repeated cleaning ends where the first
one would have ended (T80). No file is left that no record names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from ledgerfold.storage.errors import LedgerfoldError
from tests.cases.ledgerfold import LedgerfoldTarget
from tests.cases.model import Case
from tests.cases.parser import parse
from tests.cases.protocol import Refused
from tests.cases.runner import State, run_case
from tests.conftest import MakeBroker
from tests.crash.test_kill_compaction import orphans
from tests.support.broker_process import BrokerProcess
from tests.support.compactor_process import CompactorProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOPIC = "persistent://public/default/t"
BEFORE = ("clean.planned", "clean.manifest-received", "clean.before-batch")
AFTER = ("clean.after-batch", "clean.after-delete")
OLD = "0:a=1 1:b=1 2:a=2 | 3:b=2 4:a=3 |* 5:c=1"
NEW = "3:b=2 4:a=3 |* 5:c=1"


@contextlib.contextmanager
def _target(broker: BrokerProcess, compactor: CompactorProcess) -> Iterator[LedgerfoldTarget]:
    broker.wait_for_compactor()
    with contextlib.closing(LedgerfoldTarget(broker, compactor)) as target:
        yield target


def _case(*lines: str) -> Case:
    (case,) = parse("T80 Before and after a crash\n" + "".join(f"  {line}\n" for line in lines))
    return case


def _check(target: LedgerfoldTarget, *lines: str) -> None:
    """Checks steps on the existing topic."""
    outcome = run_case(target, _case(*lines), target.profile, topic=TOPIC)
    assert outcome.state is State.PASS, (outcome.why, outcome.difference)


@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_t76_t77_t80_a_broker_killed_during_a_cleaning(
    broker_process: MakeBroker, compactor: CompactorProcess, point: str
) -> None:
    """All old or all new; a repeated cleaning ends where the first one would have."""
    broker = broker_process(
        *("--kafka-config", "log.cleaner.enable=false"),
        compactor=compactor.address,
        crash_at=point,
    )
    with _target(broker, compactor) as target:
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        target.ask("kafka-create", topic=TOPIC, config=config)
        _check(target, f"log: {OLD}")
        with contextlib.suppress(Refused, LedgerfoldError):
            target.ask("kafka-clean", topic=TOPIC)
        broker.wait()
    broker.start()
    with _target(broker, compactor) as target:
        if point in BEFORE:
            _check(target, f"left: {OLD}", "checkpoint -> null", "clean")
        _check(target, f"left: {NEW}", "checkpoint -> 5", "log.start -> 0")
        _check(target, "clean -> nothing-to-clean", "log: 6:b=3 |", "clean")
        _check(target, "left: 4:a=3 5:c=1 6:b=3 |*", "checkpoint -> 7")
    assert broker.stop() == 0
    assert orphans(broker.data_dir) == []
