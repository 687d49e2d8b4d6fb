"""The damaged ledgers of a topic, for `topics stats-internal`.

Damage found at the start is remembered. The files of closed ledgers are checked now, by name and
size; their content is not read (`ledgerfold verify` does that).
"""

from __future__ import annotations

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
    """Sets `damage` in the rows with damaged ledgers.

    `is_there`: returns whether the topic still has the ledger. A ledger deleted meanwhile is not
    missing.
    """
    rows = list(rows)
    ids = [ledger_id for row in rows for ledger_id in ids_of(row)]
    found = await broker.in_thread(lambda: damage_of(broker.store, ids))
    for row in rows:
        errors = [found[each] for each in ids_of(row) if each in found and is_there(each)]
        if errors:
            row["damage"] = " ".join(map(str, errors))


def damage_of(store: LedgerStore, ledger_ids: Iterable[int]) -> dict[int, StorageError]:
    """Returns the damage of those ledgers that have some."""
    found = ((each, store.damage_of(each) or _missing_of(store, each)) for each in ledger_ids)
    return {ledger_id: error for ledger_id, error in found if error is not None}


def _missing_of(store: LedgerStore, ledger_id: int) -> StorageError | None:
    try:
        record = store.record(ledger_id)
    except MissingFile as error:
        return error
    # Files of an open ledger do not have their recorded size yet.
    return store.missing_of(ledger_id) if record.state == LEDGER_STATE_CLOSED else None
