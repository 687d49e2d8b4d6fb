"""The evaluator of `publishing-order`, which keeps each key's last message, unless it is a
tombstone.

Rules: compactor/strategies/publishing_order.py. Earlier messages do not affect a version.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> evaluator = PublishingOrder()
    >>> for entry_id, value_bytes in enumerate((1, 0, 1)):
    ...     found = Found(KeyVersion(Position(1, entry_id), -1, 5, 0, value_bytes, False))
    ...     for decision in evaluator.meet(found):
    ...         print(decision.found.name, decision.why)
    1:0 deleted by 1:1
    1:1 a tombstone
    >>> [(decision.found.name, decision.why) for decision in evaluator.keeps()]
    [('1:2', 'newest')]
"""

from __future__ import annotations

from collections.abc import Iterator

from ledgerfold.broker.explain.strategies.evaluator import Decision, applied, dropped, rule_of
from ledgerfold.broker.explain.versions import Found
from ledgerfold.v1 import explain_pb2 as pb

_STAYS = "stays until a newer value or a tombstone of its key is compacted"


class PublishingOrder:
    """An evaluator with at most one current value."""

    def __init__(self) -> None:
        self._standing: Found | None = None

    def meet(self, version: Found) -> Iterator[Decision]:
        if self._standing is not None:
            verb = "deleted" if version.is_tombstone else "superseded"
            yield dropped(self._standing, rule_of(version), f"{verb} by {version.name}", version)
        if version.is_tombstone:
            yield applied(version)
        self._standing = None if version.is_tombstone else version

    def keeps(self) -> Iterator[Decision]:
        if self._standing is not None:
            yield Decision(self._standing, True, pb.COMPACTION_RULE_NEWEST, "newest", stays=_STAYS)
