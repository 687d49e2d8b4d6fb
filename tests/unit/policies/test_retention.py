"""Retention: which ledgers are deleted, and what keeps the others."""

from __future__ import annotations

import pytest

from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.policies.retention import Hold, Holds, kept_by, ledgers_to_trim
from ledgerfold.storage.entry import LATEST, Position
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord, Policies

NOW_MS = 1_000
CLOSED = 4
OPEN_ID = 2 * CLOSED + 2
NOTHING = Policies()


def closed_ledgers(*, with_open: bool = True) -> RawLedgers:
    """Returns the closed ledgers 2, 4, 6 and 8 of one entry of 10 bytes each, closed at 200, 400,
    600 and 800, and the open ledger 10.
    """
    stored = {
        2 * at: LedgerRecord(
            ledger_id=2 * at,
            state=LEDGER_STATE_CLOSED,
            closed_ms=200 * at,
            segments=[
                {"entries": 1, "size_bytes": 10, "last": {"ledger_id": 2 * at, "entry_id": 0}}
            ],
        )
        for at in range(1, CLOSED + 1)
    }
    if with_open:
        stored[OPEN_ID] = LedgerRecord(ledger_id=OPEN_ID)
    return RawLedgers(stored, stored.__getitem__)


def kept(holds: Holds, policies: Policies = NOTHING, *, with_open: bool = True) -> list[list[str]]:
    """Returns what keeps each ledger, oldest first; what nothing keeps is deleted."""
    ledgers = closed_ledgers(with_open=with_open)
    found = kept_by(ledgers, holds, policies, NOW_MS)
    deleted = ledgers_to_trim(ledgers, holds, policies, NOW_MS)
    assert deleted == [each for each, by in found.items() if not by]
    assert list(found) == ledgers.ids
    return list(found.values())


def test_each_holder_is_named_from_its_ledger_on() -> None:
    """Nobody could see which of several cursors keeps a ledger."""
    holds = Holds(
        [
            Hold("cursor b", Position(6, -1)),
            Hold("compaction horizon", Position(2, 0)),
            Hold("cursor a", LATEST),
        ],
        [Hold("unrecorded sequence ids", Position(6, 0))],
        damaged=(8, 99),
    )
    assert kept(holds) == [
        [],
        ["compaction horizon"],
        ["compaction horizon", "cursor b"],
        ["compaction horizon", "cursor b", "unrecorded sequence ids", "1 more"],
        ["open"],
    ]


def test_many_holders_are_counted() -> None:
    """Stats are bounded: those that are behind most are named."""
    holds = Holds([Hold(f"cursor {n}", Position(2 * n, 0)) for n in range(9, -1, -1)])
    assert kept(holds)[-2] == ["cursor 0", "cursor 1", "cursor 2", "1 more"]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (Policies(), [[], [], [], []]),
        (Policies(retention_ms=500), [[], [], ["retention time"], ["retention time"]]),
        (Policies(retention_ms=-1, retention_bytes=25), [[], [], *[["both"]] * 2]),
        (Policies(retention_ms=-1, retention_bytes=-1), [["both"]] * 4),
        (Policies(retention_bytes=15), [[], [], [], ["retention size"]]),
        (Policies(retention_ms=900, retention_bytes=35), [[], *[["both"]] * 3]),
        (Policies(retention_ms=700, retention_bytes=15), [[], [], [], ["both"]]),
        (Policies(retention_ms=-1), [[], [], [], []]),
    ],
)
def test_limits_of_retention_are_named(policies: Policies, expected: list[list[str]]) -> None:
    """Both, if both are set: a ledger is deleted when it exceeds either."""
    both = ["retention time", "retention size"]
    found = kept(Holds([Hold("cursor", LATEST)]), policies)
    assert found == [both if each == ["both"] else each for each in expected] + [["open"]]


def test_retention_is_not_named_before_all_have_passed() -> None:
    """Its time does not matter until then."""
    holds = Holds([Hold("cursor", Position(4, 0))])
    assert kept(holds, Policies(retention_ms=-1, retention_bytes=-1)) == [
        *[["retention time", "retention size"]] * 2,
        *[["cursor"]] * 2,
        ["open"],
    ]


def test_a_topic_without_a_cursor() -> None:
    """The profile decides; the newest ledger stays, open or not."""
    assert kept(Holds([])) == [*[["no cursor exists"]] * 4, ["open"]]
    assert kept(Holds([], without_cursor=True)) == [[], [], [], [], ["open"]]
    found = kept(Holds([], without_cursor=True), with_open=False)
    assert found == [[], [], [], ["newest ledger"]]


def test_a_topic_without_ledgers() -> None:
    stored = dict[int, LedgerRecord]()
    ledgers = RawLedgers(stored, stored.__getitem__)
    holds = Holds([Hold("cursor", Position(4, 0))])
    assert kept_by(ledgers, holds, NOTHING, NOW_MS) == {}
    assert ledgers_to_trim(ledgers, holds, NOTHING, NOW_MS) == []
