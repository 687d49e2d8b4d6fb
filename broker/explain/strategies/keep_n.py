"""The evaluator of `keep-n`, which keeps the last n values of each key since its last tombstone.

>>> from ledgerfold.storage.entry import Position
>>> from ledgerfold.storage.key_scan import KeyVersion
>>> evaluator = KeepN(2)
>>> for entry_id in range(3):
...     found = Found(KeyVersion(Position(1, entry_id), -1, 5, 0, 1, False))
...     for decision in evaluator.meet(found):
...         print(decision.found.name, decision.why)
1:0 not one of the last 2: 1:1 to 1:2 are newer
>>> [(decision.found.name, decision.why) for decision in evaluator.keeps()]
[('1:1', 'one of the last 2'), ('1:2', 'one of the last 2')]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ledgerfold.broker.explain.strategies.evaluator import HELD_MAX, Decision, applied, dropped
from ledgerfold.broker.explain.versions import Found
from ledgerfold.storage.text import counted
from ledgerfold.v1 import explain_pb2 as pb


class KeepN:
    """An evaluator of the last n values. Bound: if n is larger, the last HELD_MAX."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._last: deque[Found] = deque()

    def meet(self, version: Found) -> Iterator[Decision]:
        if version.is_tombstone:
            for each in self._last:
                why = f"deleted by {version.name}"
                yield dropped(each, pb.COMPACTION_RULE_DELETED, why, version)
            self._last.clear()
            yield applied(version)
            return
        self._last.append(version)
        if len(self._last) > self._n:
            yield self._too_old(self._last.popleft(), version)
        elif len(self._last) > HELD_MAX:
            self._last.popleft()

    def _too_old(self, found: Found, newest: Found) -> Decision:
        if self._n == 1:
            why = f"not the last: {newest.name} is newer"
        else:
            newer = f"{self._last[0].name} to {newest.name}"
            why = f"not one of the last {self._n:,}: {newer} are newer"
        return dropped(found, pb.COMPACTION_RULE_BEYOND_N, why, newest)

    def keeps(self) -> Iterator[Decision]:
        why = "the last" if self._n == 1 else f"one of the last {self._n:,}"
        for newer, found in zip(range(len(self._last) - 1, -1, -1), self._last, strict=True):
            values = counted(self._n - newer, "more value")
            stays = f"stays until {values}, or a tombstone, of its key are compacted"
            yield Decision(found, True, pb.COMPACTION_RULE_LAST_N, why, stays=stays)
