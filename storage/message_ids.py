"""Message ids in text form, as Pulsar writes them.

    LEDGER:ENTRY:PARTITION:INDEX

A partition of -1 means no partition, an index of -1 no batch; -1 at the end is omitted.

>>> id_text(12, 40), id_text(12, 40, batch_index=3), id_text(12, 40, 0), id_text(12, 40, 0, 3)
('12:40', '12:40:-1:3', '12:40:0', '12:40:0:3')
>>> parsed_id("12:40:-1:3"), parsed_id("12:40"), parsed_id("12")
((12, 40, -1, 3), (12, 40, -1, -1), None)
"""

from __future__ import annotations

import re

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
# The notation in help and error texts.
FORM = "LEDGER:ENTRY[:PARTITION[:INDEX]]"
_ID = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::(-1|[0-9]{1,10})(?::(-1|[0-9]{1,10}))?)?")


def id_text(ledger_id: int, entry_id: int, partition: int = -1, batch_index: int = -1) -> str:
    text = f"{ledger_id}:{entry_id}"
    if batch_index >= 0:
        return f"{text}:{partition}:{batch_index}"
    return text if partition < 0 else f"{text}:{partition}"


def parsed_id(text: str) -> tuple[int, int, int, int] | None:
    """Returns ledger, entry, partition and index; None if the text is not a message id."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    ledger_id, entry_id, partition, index = (int(each or -1) for each in match.groups())
    if max(ledger_id, entry_id) > _INT64_MAX or max(partition, index) > _INT32_MAX:
        return None
    return ledger_id, entry_id, partition, index
