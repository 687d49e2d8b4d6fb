"""The events of the machine: crashes, restarts, failing disk calls, flipped bits."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.disk import DATA, Fault, File, Folder
from tests.simulation.operation import operation

if TYPE_CHECKING:
    from tests.simulation.actors import Actors
    from tests.simulation.world import World

_ERRORS = (errno.EIO, errno.EIO, errno.ENOSPC, errno.EMFILE)
_FAULTY = (
    frozenset({"sync"}),
    frozenset({"write"}),
    frozenset({"metadata"}),
    frozenset({"create", "make_dir"}),
    frozenset({"sync_dir"}),
    frozenset({"remove", "remove_dir"}),
    frozenset({"replace", "truncate", "copy", "overwrite"}),
    frozenset({"read", "open_read", "open_append", "map", "listdir"}),
)


@operation
def flip_bit(actors: Actors, random: Random) -> None:
    """In a segment, open or sealed; more often near the end."""
    paths = _segments(actors.world)
    if paths:
        path = paths[-1 - int(len(paths) * random.random() ** 2)]
        at = random.randrange(len(actors.world.disk.file(path).data))
        _flip(actors, path, at, random.randrange(8))


def _segments(world: World) -> list[Path]:
    """Returns the non-empty segments, and their deletion vectors, by the names of their ledgers."""
    folder = world.disk.find(DATA / "ledgers")
    return [
        DATA / "ledgers" / ledger / name
        for ledger, node in sorted(folder.names.items() if isinstance(folder, Folder) else ())
        for name, file in sorted(node.names.items() if isinstance(node, Folder) else ())
        if name.endswith((".log", ".dead")) and isinstance(file, File) and file.data
    ]


def _flip(actors: Actors, path: Path, at: int, bit: int) -> None:
    world = actors.world
    world.oracle.damaged(int(path.parent.name), path, at, world.pairs)
    world.disk.damage(path, at, bit)
    world.note(f"a bit flips in {path.parent.name}/{path.name} at {at}")


@operation
def flip_early(actors: Actors, random: Random) -> None:
    """In the first entry of a segment with several: the newest one."""
    world = actors.world
    for path in reversed(_segments(world)):
        ledger_id = int(path.parent.name)
        ends = [each.end for each in world.oracle.entries(ledger_id).values() if each.path == path]
        if len(ends) > 1:
            _flip(actors, path, random.randrange(ends[0]), random.randrange(8))
            return


@operation
def kill_broker(actors: Actors, random: Random) -> None:
    """kill -9, a little later."""
    actors.world.crash(power=False, calls=random.choice((0, 1, 2, 5, 10, 20, 40)))


@operation
def lose_power(actors: Actors, random: Random) -> None:
    if random.random() < 0.5:
        actors.world.crash(power=True, operation=random.choice(("sync", "sync", "metadata")))
    else:
        actors.world.crash(power=True, calls=random.choice((0, 1, 2, 5, 10, 20, 40)))


@operation
def die(actors: Actors, random: Random) -> None:
    """kill -9, now."""
    actors.world.crash_now(power=False)


@operation
def go_dark(actors: Actors, random: Random) -> None:
    """The power fails, now."""
    actors.world.crash_now(power=True)


@operation
def restart(actors: Actors, random: Random) -> None:
    actors.world.caller(actors.world.stop())


@operation
def fail_call(actors: Actors, random: Random) -> None:
    """Makes one call of the disk fail, soon."""
    fault = Fault(
        random.choice(_FAULTY), random.choice((1, 1, 2, 3, 5, 10)), random.choice(_ERRORS)
    )
    actors.world.disk.faults.append(fault)


@operation
def slow_call(actors: Actors, random: Random) -> None:
    reads = frozenset({"read", "open_read"})
    often = (frozenset({"sync"}), frozenset({"metadata"}), reads, reads)
    operations = random.choice((*often, *_FAULTY))
    delay_s = random.choice((0.05, 0.5, 5.0))
    actors.world.disk.faults.append(Fault(operations, random.choice((1, 2, 4)), 0, delay_s))


@operation
def slow_read(actors: Actors, random: Random) -> None:
    """Makes the next read of a file, or a later one, slow."""
    reads = frozenset({"read", "open_read"})
    fault = Fault(reads, random.choice((1, 1, 2)), 0, random.choice((0.05, 0.5)))
    actors.world.disk.faults.append(fault)


@operation
def fill_disk(actors: Actors, random: Random) -> None:
    """Fills the disk, and frees it some time later."""
    world = actors.world
    world.disk.is_full = True
    world.note("the disk is full")
    delay_s = random.choice((0.05, 0.5, 3.0))

    def free() -> None:
        if world.disk.is_full:
            world.disk.is_full = False
            world.note("the disk has room again")

    world.loop.call_later(delay_s, free)
