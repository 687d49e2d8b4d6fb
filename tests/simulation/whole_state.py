"""Operations on all of a broker's state: snapshots, and a topic that comes from another broker."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING

from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.snapshots import Snapshots
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import SnapshotRecords
from tests.model.broker_lab import BrokerLab
from tests.simulation.connections import call
from tests.simulation.operation import ask_admin, operation
from tests.support.archives import archive_blocks_of
from tests.support.versions import compact_twice

if TYPE_CHECKING:
    from tests.simulation.actors import Actors

WEIGHTS = {"save_snapshot": 4, "restore_snapshot": 4, "delete_snapshot": 1, "import_topic": 2}
IMPORTED = "persistent://public/default/imported"
# Beyond the ids of the ledgers of a scenario.
_FIRST_LEDGER_ID = 1_000
_NAMES = ("s1", "s2")


class _Snapshots(Snapshots):
    """Tells when the records of a snapshot have been read."""

    on_saving: Callable[[SnapshotRecords], None]

    def _build(self, records: SnapshotRecords, data: bytes) -> None:
        self.on_saving(records)
        super()._build(records, data)


def snapshots_of(broker: Broker, on_saving: Callable[[SnapshotRecords], None]) -> BrokerSnapshots:
    """Returns the snapshots of a broker that has just started."""
    found = BrokerSnapshots(broker)
    told = _Snapshots(
        broker.settings.data_dir, broker.metadata, broker.store.files, broker.clock_ms
    )
    told.on_saving = on_saving
    found._snapshots = told
    return found


@functools.cache
def _archive_file() -> IO[bytes]:
    """Returns the archive of a topic that another broker has compacted. It is never closed."""
    lab = BrokerLab()
    lab.metadata.skip_ledger_ids(_FIRST_LEDGER_ID - 1)
    lab.restart()
    compact_twice(lab, IMPORTED)
    lab.stop()
    file = NamedTemporaryFile(suffix=".tar")  # noqa: SIM115 - until the process ends
    file.writelines(archive_blocks_of(lab, IMPORTED))
    file.flush()
    lab.loop.close()
    return file


def archive() -> Path:
    """Returns the path of the archive. Made once, outside of a simulation."""
    return Path(_archive_file().name)


def _ask(actors: Actors, what: str, work: Callable[[BrokerSnapshots], Awaitable[object]]) -> None:
    world = actors.world

    async def ask() -> None:
        async def serve(_: Broker) -> object:
            assert world.snapshots is not None
            return await work(world.snapshots)

        try:
            await call(world, serve)
            world.note(f"{what}: done")
        except LedgerfoldError as error:
            world.note(f"{what}: {error!r:.110}")

    world.note(what)
    world.caller(ask())


@operation
def save_snapshot(actors: Actors, random: Random) -> None:
    name = random.choice(_NAMES)
    _ask(actors, f"save {name}", lambda snapshots: snapshots.save(name))


@operation
def restore_snapshot(actors: Actors, random: Random) -> None:
    name = random.choice(_NAMES)
    _ask(actors, f"restore {name}", lambda snapshots: snapshots.restore(name))


@operation
def delete_snapshot(actors: Actors, random: Random) -> None:
    name = random.choice(_NAMES)
    _ask(actors, f"delete {name}", lambda snapshots: snapshots.delete(name))


@operation
def import_topic(actors: Actors, random: Random) -> None:
    """Imports a topic while the broker is stopped; or compacts or deletes the imported one."""
    world = actors.world
    if world.pairs.get(f"topic/{IMPORTED}".encode()) is None:
        world.to_import = archive()
        world.caller(world.stop())
    elif random.random() < 0.5:
        request = admin_pb2.TriggerCompactionRequest(topic=IMPORTED)
        ask_admin(actors, "compact what was imported", "TriggerCompaction", request)
    else:
        deletion = admin_pb2.DeleteTopicRequest(topic=IMPORTED, force=True)
        ask_admin(actors, "delete what was imported", "DeleteTopic", deletion)
