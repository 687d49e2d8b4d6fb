"""Metadata that are older than their files, by more writes than a power loss allows.

The end of scenarios of the kind "metadata", instead of converge.py: at any point the broker dies,
and the store loses its last writes, a few or all. Then less is promised (docs/RELIABILITY.md),
compared with what readers get of the same files without lost writes:

* They get everything, or an error: nothing is silently missing.
* A start that detects the loss removes no file that holds an entry.
* After a repair nothing is damaged, and raw readers get everything again, each message once.
* A snapshot can be restored after a repair, and brings back the same, unless the repair changed one
  of its ledgers.

Of all topics: those of both kinds, and one that was imported. Deleted and truncated messages may
come back, before those that were published later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    CompactedLedgerDamaged,
    Corruption,
    LedgerfoldError,
    MetadataLost,
    MissingFile,
    NotAllowed,
    TopicNotFound,
)
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.records import STORE_KEY
from ledgerfold.storage.snapshot_folder import SnapshotFolder
from ledgerfold.storage.unnamed import unnamed_files
from ledgerfold.v1.records_pb2 import TopicRecord
from tests.model.broker_lab import DATA
from tests.model.log_model import Read
from tests.simulation.disk import File, Folder
from tests.simulation.life import Violation
from tests.simulation.whole_state import IMPORTED
from tests.simulation.world import World
from tests.support.kafka_lab import KafkaLab
from tests.support.lossy_files import CountedKeyValue, LossyFiles
from tests.support.offline import LEDGERS, Offline, Snapshot

Write = tuple[dict[bytes, bytes], tuple[bytes, ...]]
LOST = (MetadataLost, Corruption, MissingFile, CompactedLedgerDamaged)
# The number of prefixes of one history that are tested.
_PREFIXES = 3
_CLEANED = "a cleaned segment is restored"
_COPIED = "being deleted"
# How many fields of a message are its place: a position with a batch index, or an offset.
_PLACE = {True: 2, False: 1}


class Found(NamedTuple):
    """All messages of a topic that a kind of reader gets; of readers of compacted data, with the
    view's horizon; of committed records, with the offset of the oldest open transaction, if any.
    """

    messages: list[Any]
    horizon: Position = EARLIEST
    stable_end: float = inf


class Kind(NamedTuple):
    """A topic, and a kind of reader: of compacted data, or of committed records."""

    topic: str
    is_strict: bool


class Whole(NamedTuple):
    """The reads without lost writes: of the topics, and of those of each snapshot."""

    reads: dict[Kind, Found]
    snapshots: dict[str, dict[Kind, Found]]


async def die(world: World, random: Random) -> None:
    """kill -9, or a power failure: nothing is restarted."""
    world.note("the broker dies, and metadata are lost")
    world.crash_now(power=random.random() < 0.5)
    while world.process is not None and world.process.is_dead:  # noqa: ASYNC110 - a death is silent
        await asyncio.sleep(0)


def check(world: World, random: Random) -> None:
    """Called once the loop has stopped. Raises Violation."""
    writes = world.pairs.history
    is_same_boot = world.is_same_boot
    contents = dict(_contents(world))
    whole = _whole(Snapshot(contents, _pairs(writes)), is_same_boot=is_same_boot)
    truncated = {name for name, life in world.oracle.kafka.items() if life.cuts}
    if not world.has_imported:
        # It may be there, or not.
        for each in [each for each in whole.reads if each.topic == IMPORTED]:
            del whole.reads[each]
    starts = _log_starts(_pairs(writes))
    for count in {random.randrange(len(writes)), *_some(random, len(writes))}:
        world.note(f"of {len(writes)} writes {count} are left")
        try:
            snapshot = Snapshot(contents, _pairs(writes[:count]))
            left = _log_starts(snapshot.pairs)
            lowered = {name for name, start in starts.items() if left.get(name, 0) < start}
            reopened = truncated | lowered
            _check_start(snapshot, whole, reopened, is_same_boot=is_same_boot)
            _check_repair(snapshot, whole, reopened, is_same_boot=is_same_boot)
        except (LedgerfoldError, TimeoutError) as error:
            raise Violation(f"with {count} of {len(writes)} writes: {error!r}") from error
        except Violation as error:
            raise Violation(f"with {count} of {len(writes)} writes: {error}") from error


def _some(random: Random, count: int) -> list[int]:
    """Returns some of the prefixes, usually nearly all."""
    return [max(0, count - 1 - int(random.expovariate(0.3))) for _ in range(_PREFIXES - 1)]


def _contents(world: World) -> Iterable[tuple[Path, bytes]]:
    folders = [(DATA, world.disk.find(DATA))]
    while folders:
        path, folder = folders.pop()
        if not isinstance(folder, Folder):
            continue
        for name, node in sorted(folder.names.items()):
            if isinstance(node, File):
                yield path / name, bytes(node.data)
            else:
                folders.append((path / name, node))


def _pairs(writes: Iterable[Write]) -> list[tuple[bytes, bytes]]:
    store = MemoryKeyValue()
    for puts, deletes in writes:
        store.write(puts, deletes)
    return store.scan(b"")


def _start(files: LossyFiles, pairs: CountedKeyValue, *, is_same_boot: bool) -> KafkaLab:
    lab = KafkaLab.__new__(KafkaLab)
    lab.resume(files, pairs, is_same_boot=is_same_boot)
    return lab


def _whole(snapshot: Snapshot, *, is_same_boot: bool) -> Whole:
    files, pairs = snapshot.disk()
    lab = _start(files, pairs, is_same_boot=is_same_boot)
    try:
        reads = _reads(lab)
        names = SnapshotFolder(DATA, files).names()
        return Whole(reads, {name: _restored(lab, name) for name in names})
    finally:
        lab.stop()


def _restored(lab: KafkaLab, name: str) -> dict[Kind, Found]:
    """Raises NotAllowed: a repair changed one of its ledgers."""
    lab.run(BrokerSnapshots(lab.broker).restore(name))
    lab.settle()
    return _reads(lab)


def _reads(lab: KafkaLab) -> dict[Kind, Found]:
    """Reads everything. Raises what readers get."""
    topics = [each.name for each in lab.metadata.topics()]
    kinds = [Kind(topic, is_strict) for topic in topics for is_strict in (False, True)]
    return {each: _read(lab, each) for each in kinds}


def _read(lab: KafkaLab, kind: Kind) -> Found:
    topic, is_strict = kind
    record = lab.metadata.topic(topic)
    if record is not None and record.HasField("kafka"):
        messages = lab.records(committed=is_strict, topic=topic)
        partition = lab.run(lab.broker.kafka_topic(topic)).partition
        return Found(messages, stable_end=partition.last_stable_offset if is_strict else inf)
    try:
        found = lab.read(EARLIEST, read_compacted=is_strict, topic=topic)
    except TopicNotFound:
        return Found([])
    loaded = lab.broker.topics.get(topic)
    return Found(found, (None if loaded is None else loaded.log.views.horizon) or EARLIEST)


def _check_start(
    snapshot: Snapshot, whole: Whole, reopened: Collection[str], *, is_same_boot: bool
) -> None:
    files, pairs = snapshot.disk()
    before, starts = _with_entries(files), _log_starts(snapshot.pairs)
    if pairs.get(STORE_KEY) is None and files.listdir(LEDGERS):
        # NOTE: it does not start at all, which tests/unit/storage/test_lost_metadata.py shows.
        return
    lab = _start(files, pairs, is_same_boot=is_same_boot)
    try:
        for kind, wanted in whole.reads.items():
            try:
                found = _read(lab, kind)
            except LOST:
                continue
            if kind.is_strict and found.horizon > wanted.horizon:
                # The lost writes dropped the view: it exists again, without superseded messages.
                continue
            wanted = _from_start(wanted, starts.get(kind.topic, 0))
            _check_found(_committed(wanted, found, kind, reopened), found, str(kind))
    finally:
        is_incomplete, torn = lab.report.is_incomplete, {*lab.report.torn}
        lab.stop()
    if is_incomplete:
        gone = before - _with_entries(files) - {_relative(each) for each in torn}
        if gone:
            raise Violation(f"{sorted(gone)} hold entries, and a start removes them")


def _check_repair(
    snapshot: Snapshot, whole: Whole, reopened: Collection[str], *, is_same_boot: bool
) -> None:
    files, pairs = snapshot.disk()
    starts = _log_starts(snapshot.pairs)
    offline = Offline(DATA, pairs, files, is_same_boot=is_same_boot)
    plan = offline.repair()
    # It says so: a restore may have made them live, or not.
    copied = {(each.topic, each.ledger_id) for each in plan.steps if _COPIED in each.what}
    # Perhaps by a cleaning that was not published; but it has ended, and kept what it must.
    cleaned = {each.topic for each in plan.steps if _CLEANED in each.what}
    damage = offline.damage()
    if damage:
        raise Violation(f"damaged behind a repair: {damage}")
    lab = _start(files, pairs, is_same_boot=is_same_boot)
    try:
        if lab.report.is_incomplete or lab.report.damaged:
            raise Violation(f"a repair leaves {lab.report}")
        for kind, wanted in whole.reads.items():
            if kind.topic in cleaned:
                wanted = _last_of_keys(wanted) if kind.is_strict else Found([])
            elif kind.is_strict:
                continue
            left = _from_start(wanted, starts.get(kind.topic, 0))
            left = _without(left, {at for topic, at in copied if topic == kind.topic})
            found = _read(lab, kind)
            left = _committed(left, found, kind, reopened)
            _check_found(left, found, f"a repair, {kind}")
        for name, reads in whole.snapshots.items():
            _check_snapshot(lab, name, reads)
    finally:
        lab.stop()


def _log_starts(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, int]:
    """Returns the log start of each Kafka topic: a lost restore may have moved it back."""
    found = [TopicRecord.FromString(value[1:]) for at, value in pairs if at.startswith(b"topic/")]
    return {each.name: each.kafka.log_start_offset for each in found if each.HasField("kafka")}


def _from_start(wanted: Found, log_start: int) -> Found:
    if not log_start:
        return wanted
    return wanted._replace(messages=[each for each in wanted.messages if each[0] >= log_start])


def _committed(wanted: Found, found: Found, kind: Kind, reopened: Collection[str]) -> Found:
    """Returns the wanted messages before the oldest open transaction.

    Lost writes may open one again: one whose end was truncated, or that began before the log start.
    """
    if kind.topic not in reopened or found.stable_end == inf:
        return wanted
    messages = [each for each in wanted.messages if each[0] < found.stable_end]
    return wanted._replace(messages=messages)


def _last_of_keys(wanted: Found) -> Found:
    """Returns the last record of each key, of committed records with a value."""
    last = {key: (offset, key, value) for offset, key, value in wanted.messages}
    return Found([each for each in last.values() if each[2] is not None])


def _without(wanted: Found, ledger_ids: set[int]) -> Found:
    """Returns the messages of other ledgers; none of a Kafka topic, whose records name none."""
    if not ledger_ids:
        return wanted
    reads = [each for each in wanted.messages if isinstance(each, Read)]
    return Found([each for each in reads if each.position.ledger_id not in ledger_ids])


def _check_snapshot(lab: KafkaLab, name: str, wanted: dict[Kind, Found]) -> None:
    try:
        found = _restored(lab, name)
    except NotAllowed:
        return
    if found != wanted:
        raise Violation(f"snapshot {name} brings back {found} instead of {wanted}")


def _check_found(wanted: Found, found: Found, where: str) -> None:
    missing = Counter(wanted.messages) - Counter(found.messages)
    if missing:
        some = ", ".join(map(str, sorted(missing)[:3]))
        raise Violation(f"{len(missing)} messages vanish without a word, {where}: {some}")
    places = [each[: _PLACE[isinstance(each, Read)]] for each in found.messages]
    again = [one for one, other in pairwise(places) if one >= other]
    if again:
        raise Violation(f"{len(again)} messages come twice, {where}: {again[:3]}")


def _with_entries(files: LossyFiles) -> set[str]:
    return {each.relative for each in unnamed_files(LEDGERS, {}, files) if each.holds_entries}


def _relative(path: str) -> str:
    return "/".join(Path(path).parts[-2:])
