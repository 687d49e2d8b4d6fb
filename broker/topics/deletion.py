"""The deletion of topics that are unloaded: their records in one write, then their files.

A crash in between leaves ledgers that are marked as being deleted; the next start removes their
files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from ledgerfold.broker.compaction.interfaces import BrokerContext
from ledgerfold.broker.log.ledger_record import all_ledger_ids
from ledgerfold.broker.topics.permissions import delete_grants
from ledgerfold.storage.metadata import MetadataBatch


async def delete_records(
    broker: BrokerContext,
    names: Sequence[str],
    and_also: Callable[[MetadataBatch], None],
    on_deleted: Iterable[Callable[[str], None]],
) -> None:
    """Deletes topics, stored or not. The caller holds their locks. `and_also`: in the same write.

    `on_deleted` are called with each name. Raises StorageError; then nothing has changed, or only
    files are left.
    """
    records = filter(None, map(broker.metadata.topic, names))
    ledger_ids = [each for record in records for each in all_ledger_ids(record)]

    def forget(batch: MetadataBatch) -> None:
        for name in names:
            batch.delete_topic(name)
        and_also(batch)
        delete_grants(broker.metadata, names, batch)
        for ledger_id in ledger_ids:
            broker.store.mark_deleting(ledger_id, batch)

    await broker.in_thread(lambda: broker.metadata.change(forget))
    for name in names:
        for callback in on_deleted:
            callback(name)
    await broker.in_thread(functools.partial(broker.store.delete_all_files, ledger_ids))
