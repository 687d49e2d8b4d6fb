"""Metadata that are older than their files, by more writes than a power loss allows.

The end of scenarios of the kind "metadata", instead of converge.py: at any point the broker dies,
and the store loses its last writes, a few or all. Then less is promised (docs/RELIABILITY.md),
compared with what readers get of the same files without lost writes:

* They get everything, or an error: nothing is silently missing.
* A start that detects the loss removes no file that holds an entry.
* After a repair nothing is damaged, and raw readers get everything again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    CompactedLedgerDamaged,
    Corruption,
    LedgerfoldError,
    MetadataLost,
    MissingFile,
    TopicNotFound,
)
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.records import STORE_KEY
from ledgerfold.storage.unnamed import unnamed_files
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Read
from tests.simulation.disk import File, Folder
from tests.simulation.life import Violation
from tests.simulation.world import World
from tests.support.lossy_files import CountedKeyValue, LossyFiles
from tests.support.offline import LEDGERS, Offline, Snapshot

Write = tuple[dict[bytes, bytes], tuple[bytes, ...]]
LOST = (MetadataLost, Corruption, MissingFile, CompactedLedgerDamaged)
# The number of prefixes of one history that are tested.
_PREFIXES = 3


class Found(NamedTuple):
    """All messages that readers get, by whether they read compacted, and the view's horizon."""

    reads: dict[bool, list[Read]]
    horizon: Position


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
    whole = _reads(Snapshot(contents, _pairs(writes)), is_same_boot=is_same_boot)
    for count in {random.randrange(len(writes)), *_some(random, len(writes))}:
        world.note(f"of {len(writes)} writes {count} are left")
        try:
            snapshot = Snapshot(contents, _pairs(writes[:count]))
            _check_start(snapshot, whole, is_same_boot=is_same_boot)
            _check_repair(snapshot, whole, is_same_boot=is_same_boot)
        except LedgerfoldError as error:
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


def _start(files: LossyFiles, pairs: CountedKeyValue, *, is_same_boot: bool) -> BrokerLab:
    lab = BrokerLab.__new__(BrokerLab)
    lab.resume(files, pairs, is_same_boot=is_same_boot)
    return lab


def _reads(snapshot: Snapshot, *, is_same_boot: bool) -> Found:
    lab = _start(*snapshot.disk(), is_same_boot=is_same_boot)
    try:
        reads = {each: _read(lab, read_compacted=each) for each in (False, True)}
        return Found(reads, _horizon(lab))
    finally:
        lab.stop()


def _horizon(lab: BrokerLab) -> Position:
    topic = lab.broker.topics.get(TOPIC)
    return (None if topic is None else topic.log.views.horizon) or EARLIEST


def _read(lab: BrokerLab, *, read_compacted: bool) -> list[Read]:
    try:
        return lab.read(EARLIEST, read_compacted=read_compacted)
    except TopicNotFound:
        return []


def _check_start(snapshot: Snapshot, whole: Found, *, is_same_boot: bool) -> None:
    files, pairs = snapshot.disk()
    before = _with_entries(files)
    if pairs.get(STORE_KEY) is None and files.listdir(LEDGERS):
        # NOTE: it does not start at all, which tests/unit/storage/test_lost_metadata.py shows.
        return
    lab = _start(files, pairs, is_same_boot=is_same_boot)
    try:
        for read_compacted, wanted in whole.reads.items():
            try:
                found = _read(lab, read_compacted=read_compacted)
            except LOST:
                continue
            if read_compacted and _horizon(lab) > whole.horizon:
                # The lost writes dropped the view: it exists again, without superseded messages.
                continue
            _check_found(wanted, found, f"read_compacted={read_compacted}")
    finally:
        is_incomplete, torn = lab.report.is_incomplete, {*lab.report.torn}
        lab.stop()
    if is_incomplete:
        gone = before - _with_entries(files) - {_relative(each) for each in torn}
        if gone:
            raise Violation(f"{sorted(gone)} hold entries, and a start removes them")


def _check_repair(snapshot: Snapshot, whole: Found, *, is_same_boot: bool) -> None:
    files, pairs = snapshot.disk()
    offline = Offline(DATA, pairs, files, is_same_boot=is_same_boot)
    offline.repair()
    damage = offline.damage()
    if damage:
        raise Violation(f"damaged behind a repair: {damage}")
    lab = _start(files, pairs, is_same_boot=is_same_boot)
    try:
        if lab.report.is_incomplete or lab.report.damaged:
            raise Violation(f"a repair leaves {lab.report}")
        _check_found(whole.reads[False], _read(lab, read_compacted=False), "a repair")
    finally:
        lab.stop()


def _check_found(wanted: list[Read], found: list[Read], where: str) -> None:
    missing = Counter(wanted) - Counter(found)
    if missing:
        some = ", ".join(map(str, sorted(missing)[:3]))
        raise Violation(f"{len(missing)} messages vanish without a word, {where}: {some}")


def _with_entries(files: LossyFiles) -> set[str]:
    return {each.relative for each in unnamed_files(LEDGERS, {}, files) if each.holds_entries}


def _relative(path: str) -> str:
    return "/".join(Path(path).parts[-2:])
