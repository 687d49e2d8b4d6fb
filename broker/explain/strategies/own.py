"""The evaluator of user-defined strategies: the broker never runs their code, so it reports
results.

Messages in the compacted ledger were kept; of the others only the last run is known to have dropped
those in its input. Only the next run determines its decisions.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> found = Found(KeyVersion(Position(1, 0), -1, 5, 0, 1, False), in_raw=True)
    >>> [(decision.keeps, decision.why) for decision in Own("shop:Best").meet(found)]
    [(False, "the code of 'shop:Best' decides")]
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.broker.explain.strategies.evaluator import Decision
from ledgerfold.broker.explain.versions import Found
from ledgerfold.v1 import explain_pb2 as pb


class Own:
    """An evaluator of the user-defined strategy `name`."""

    def __init__(self, name: str) -> None:
        self._why = f"the code of {name!r} decides"

    def meet(self, version: Found) -> Iterable[Decision]:
        keeps = version.in_compacted
        return [Decision(version, keeps, pb.COMPACTION_RULE_OWN_CODE, self._why)]

    def keeps(self) -> Iterable[Decision]:
        return ()
