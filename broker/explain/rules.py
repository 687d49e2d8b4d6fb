"""What compaction did, and will do, with each version of a key: the strategy `latest`, told. Pure.

A version is a message of the key. It lies in a raw ledger, in the compacted ledger, or in both.
Rules (docs/GLOSSARY.md; compactor/strategies/latest.py does what is told here):

1. Beyond the horizons of all runs nobody has looked at it yet.
2. The first run whose horizon reached it dropped it when it is a tombstone, or when a newer message
   of the key stood in that run's range. Else that run kept it, until the first run that reached the
   newer message.
3. Without a key: dropped by the first run that had retain_null_key=false, kept by all before it.
4. A run's input is the previous compacted ledger and what lies above the horizon. So what was
   dropped stays out, even while its raw ledger exists; and segments of the compacted ledger that
   lie before what retention left are not part of the input either.

What the compacted ledger really holds is compared with the rules: a difference is damage, and said.

    >>> a, b = KeyVersion(Position(1, 0), -1, 5, 0, 2, False), Position(1, 1)
    >>> history = [Found(a, in_raw=True), Found(a._replace(position=b, value_bytes=0), in_raw=True)]
    >>> explained = explain(history, Facts())
    >>> [version.next for version in explained.versions]
    ['the next run drops it: deleted by 1:1', 'the next run drops it: a tombstone']

Bound: the newest VERSIONS_MAX versions are told, older ones are counted: a megabyte or so. The
input may be as long as it likes: it is looked at once, with one version of foresight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from ledgerfold.broker.explain import text as explain_text
from ledgerfold.broker.explain.run_line import RunLine, RunSpan
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import MessageId

VERSIONS_MAX = 1_000


class Found(NamedTuple):
    """A version and where it lies. `segment_last`: the last position of its compacted segment."""

    version: KeyVersion
    in_raw: bool = False
    in_compacted: bool = False
    segment_last: Position = EARLIEST

    @property
    def position(self) -> Position:
        return self.version.position

    @property
    def is_tombstone(self) -> bool:
        return self.version.value_bytes == 0

    @property
    def identity(self) -> tuple[Position, int]:
        return self.version.position, self.version.batch_index


@dataclass(frozen=True)
class Facts:
    """What is known of the topic. `line` is there exactly when `horizon` is.

    `floor`: retention removed what lies before it. `retain_null_key`: the policy in force.
    """

    horizon: Position | None = None
    line: RunLine | None = None
    floor: Position = EARLIEST
    retain_null_key: bool = False
    has_key: bool = True
    partition: int = -1


class Explained(NamedTuple):
    """`older`: versions before those listed."""

    versions: list[pb.ExplainedVersion]
    older: int


def found_in(
    raw: Iterable[KeyVersion], compacted: Iterable[tuple[KeyVersion, Position]]
) -> Iterator[Found]:
    """Both, which are in order of id, as one; `compacted` with the last position of the segment."""
    both = merge(
        (Found(version, in_raw=True) for version in raw),
        (Found(version, in_compacted=True, segment_last=last) for version, last in compacted),
        key=lambda found: found.identity,
    )
    for _, group in groupby(both, key=lambda found: found.identity):
        first, *rest = group
        yield (
            first._replace(in_compacted=True, segment_last=rest[0].segment_last) if rest else first
        )


def explain(
    history: Iterable[Found],
    facts: Facts,
    *,
    wanted: Callable[[Found], bool] = lambda found: True,
    versions_max: int = VERSIONS_MAX,
) -> Explained:
    """`history`: all versions of one key that exist, in order of id. `wanted`: which of them to
    tell about."""
    newest: deque[tuple[Found, Found | None]] = deque(maxlen=versions_max)
    count = 0
    for found, following in pairwise(chain(history, [None])):
        if found is not None and wanted(found):
            newest.append((found, following if facts.has_key else None))
            count += 1
    told = [_tell(found, following, facts) for found, following in newest]
    return Explained(told, count - len(told))


def explain_trimmed(message_id: MessageId, facts: Facts) -> pb.ExplainedVersion:
    """Of a message that lies nowhere any more, what the runs can tell."""
    told = pb.ExplainedVersion(id=message_id, place=pb.VERSION_PLACE_TRIMMED)
    told.id.partition = facts.partition
    first = None
    if facts.line is not None:
        first = facts.line.first_over(Position(message_id.ledger_id, message_id.entry_id))
    if first is None or facts.line is None:
        told.state = pb.VERSION_STATE_NEVER_MET
    else:
        told.state = pb.VERSION_STATE_UNKNOWN
        told.dropped_by.CopyFrom(_span(RunSpan(first.first, facts.line.last)))
    told.what = explain_text.what(told, facts.horizon, facts.floor)
    return told


def _tell(found: Found, following: Found | None, facts: Facts) -> pb.ExplainedVersion:
    version = found.version
    told = pb.ExplainedVersion(
        id=_message_id(found, facts),
        publish_time_ms=version.publish_time_ms,
        event_time_ms=version.event_time_ms,
        value_bytes=version.value_bytes,
        key_is_base64=version.key_is_base64,
        place=_place(found),
        is_hidden=not found.in_raw and found.position < facts.floor,
    )
    _tell_past(told, found, following, facts)
    _tell_next(told, found, following, facts)
    told.what = explain_text.what(told, facts.horizon, facts.floor)
    told.next = explain_text.next_change(told, facts.floor)
    return told


def _place(found: Found) -> pb.VersionPlace:
    if not found.in_compacted:
        return pb.VERSION_PLACE_RAW
    return pb.VERSION_PLACE_BOTH if found.in_raw else pb.VERSION_PLACE_COMPACTED


def _tell_past(
    told: pb.ExplainedVersion, found: Found, following: Found | None, facts: Facts
) -> None:
    first = _first_run(found, facts)
    if first is None or facts.line is None:
        told.state = pb.VERSION_STATE_ABOVE_HORIZON
        return
    dropped: RunSpan | None = None
    if not facts.has_key and found.in_compacted:
        told.rule = pb.COMPACTION_RULE_NULL_KEY_RETAINED
        first = facts.line.null_keys_kept_by(found.position) or first
    elif not facts.has_key:
        told.rule = pb.COMPACTION_RULE_NULL_KEY
        dropped = facts.line.null_keys_dropped_by(found.position)
    elif found.is_tombstone:
        told.rule, dropped = pb.COMPACTION_RULE_TOMBSTONE, first
    elif following is not None and (dropped := _first_run(following, facts)) is not None:
        told.rule = _rule_of(following)
        told.by.CopyFrom(_message_id(following, facts))
    else:
        told.rule = pb.COMPACTION_RULE_NEWEST
    told.state = pb.VERSION_STATE_KEPT if dropped is None else pb.VERSION_STATE_DROPPED
    if (dropped is None) != found.in_compacted:
        told.state = pb.VERSION_STATE_INCONSISTENT
    if dropped is None or first.last < dropped.first:
        told.kept_by.CopyFrom(_span(first))
    if dropped is not None:
        told.dropped_by.CopyFrom(_span(dropped))


def _first_run(found: Found, facts: Facts) -> RunSpan | None:
    """The run that met it first; None when none has."""
    return None if facts.line is None else facts.line.first_over(found.position)


def _tell_next(
    told: pb.ExplainedVersion, found: Found, following: Found | None, facts: Facts
) -> None:
    is_above = facts.horizon is None or found.position > facts.horizon
    if not is_above and not found.in_compacted:
        return
    if found.in_compacted and found.segment_last < facts.floor:
        told.next_rule = pb.COMPACTION_RULE_RETENTION
    elif not facts.has_key:
        retains = facts.retain_null_key
        told.next_rule = (
            pb.COMPACTION_RULE_NULL_KEY_RETAINED if retains else pb.COMPACTION_RULE_NULL_KEY
        )
    elif found.is_tombstone:
        told.next_rule = pb.COMPACTION_RULE_TOMBSTONE
    elif following is not None:
        told.next_rule = _rule_of(following)
        told.next_by.CopyFrom(_message_id(following, facts))
    else:
        told.next_rule = pb.COMPACTION_RULE_NEWEST


def _rule_of(following: Found) -> pb.CompactionRule:
    """What a newer message of its key does to a value."""
    return pb.COMPACTION_RULE_DELETED if following.is_tombstone else pb.COMPACTION_RULE_OBSCURED


def _message_id(found: Found, facts: Facts) -> MessageId:
    ledger_id, entry_id = found.position
    return MessageId(
        ledger_id=ledger_id,
        entry_id=entry_id,
        batch_index=found.version.batch_index,
        partition=facts.partition,
    )


def _span(span: RunSpan) -> pb.RunSpan:
    return pb.RunSpan(first=span.first, last=span.last)
