"""Message ids as people read and write them; cli/start_positions.py reads them.

>>> id_text(12, 40), id_text(12, 40, batch_index=3), id_text(12, 40, 0, 3)
('12:40', '12:40:3', '12:40:0:3')
"""

from __future__ import annotations


def id_text(ledger_id: int, entry_id: int, partition: int = -1, batch_index: int = -1) -> str:
    """LEDGER:ENTRY, :INDEX of a batch's; a partition's LEDGER:ENTRY:PARTITION:INDEX, as Python's.

    An index of -1 is no batch's, a partition of -1 is none.
    """
    text = f"{ledger_id}:{entry_id}"
    if partition >= 0:
        return f"{text}:{partition}:{batch_index}"
    return text if batch_index < 0 else f"{text}:{batch_index}"
