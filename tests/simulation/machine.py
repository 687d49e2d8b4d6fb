"""What the machine does: crashes, restarts, calls of the disk that fail, bits that flip."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.disk import DATA, Fault, File, Folder
from tests.simulation.operation import operation

if TYPE_CHECKING:
    from tests.simulation.actors import Actors

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
    """Somewhere in a segment, open or sealed; the more to the end, the likelier."""
    disk, folder = actors.world.disk, actors.world.disk.find(DATA / "ledgers")
    paths = [
        DATA / "ledgers" / ledger / name
        for ledger, node in sorted(folder.names.items() if isinstance(folder, Folder) else ())
        for name, file in sorted(node.names.items() if isinstance(node, Folder) else ())
        if name.endswith(".log") and isinstance(file, File) and file.data
    ]
    if paths:
        path = paths[-1 - int(len(paths) * random.random() ** 2)]
        at = random.randrange(len(disk.file(path).data))
        world = actors.world
        world.oracle.damaged(int(path.parent.name), path, at, world.pairs)
        disk.damage(path, at, random.randrange(8))
        actors.world.note(f"a bit flips in {path.parent.name}/{path.name} at {at}")


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
def restart(actors: Actors, random: Random) -> None:
    actors.world.client(actors.world.stop())


@operation
def fail_call(actors: Actors, random: Random) -> None:
    """One call of the disk, soon."""
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
def fill_disk(actors: Actors, random: Random) -> None:
    """And it is emptied some time later."""
    world = actors.world
    world.disk.is_full = True
    world.note("the disk is full")
    delay_s = random.choice((0.05, 0.5, 3.0))

    def free() -> None:
        if world.disk.is_full:
            world.disk.is_full = False
            world.note("the disk has room again")

    world.loop.call_later(delay_s, free)
