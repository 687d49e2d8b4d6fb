"""Which ledgers of a topic are damaged, for `topics stats-internal`.

What a start found wrong is remembered. Of ledgers that are closed the files are looked for now, by
name and size; nobody looks at what is in them (`ledgerfold verify` does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import MissingFile, StorageError
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED


async def add_damage(
    rows: Iterable[dict[str, Any]],
    ids_of: Callable[[dict[str, Any]], Iterable[int]],
    broker: Broker,
    is_there: Callable[[int], bool],
) -> None:
    """Puts `damage` into the rows whose ledgers have some.

    `is_there`: the topic still has that ledger. One that goes meanwhile is not missing.
    """
    rows = list(rows)
    ids = [ledger_id for row in rows for ledger_id in ids_of(row)]
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(broker.executor, damage_of, broker.store, ids)
    for row in rows:
        told = [found[each] for each in ids_of(row) if each in found and is_there(each)]
        if told:
            row["damage"] = " ".join(map(str, told))


def damage_of(store: LedgerStore, ledger_ids: Iterable[int]) -> dict[int, StorageError]:
    """Of those that have some."""
    found = ((each, store.damage_of(each) or _missing_of(store, each)) for each in ledger_ids)
    return {ledger_id: error for ledger_id, error in found if error is not None}


def _missing_of(store: LedgerStore, ledger_id: int) -> StorageError | None:
    try:
        record = store.record(ledger_id)
    except MissingFile as error:
        return error
    # Files of one that is written to are not as long as its record says.
    return store.missing_of(ledger_id) if record.state == LEDGER_STATE_CLOSED else None
