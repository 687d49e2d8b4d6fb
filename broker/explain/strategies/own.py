"""A strategy of one's own: the broker never runs its code, so it can tell only what is to be seen.

What the compacted ledger holds was kept; of the rest only the last run is known to have dropped
what it met. What the next run will do only a run can tell.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> found = Found(KeyVersion(Position(1, 0), -1, 5, 0, 1, False), in_raw=True)
    >>> [(verdict.keeps, verdict.why) for verdict in Own("shop:Best").meet(found)]
    [(False, "the code of 'shop:Best' decides")]
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.broker.explain.strategies.evaluator import Decision
from ledgerfold.broker.explain.versions import Found
from ledgerfold.v1 import explain_pb2 as pb


class Own:
    """`name`: the strategy's."""

    def __init__(self, name: str) -> None:
        self._why = f"the code of {name!r} decides"

    def meet(self, version: Found) -> Iterable[Decision]:
        keeps = version.in_compacted
        return [Decision(version, keeps, pb.COMPACTION_RULE_OWN_CODE, self._why)]

    def keeps(self) -> Iterable[Decision]:
        return ()
