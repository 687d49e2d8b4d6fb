"""Appends of batches: where they come from, and their results."""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.storage.entry import Position


class Appended(NamedTuple):
    """The result of an append. `durable_at`: the position that releases the receipt; None is at
    once.

    `append_time_ms`: the time of all its records, under LogAppendTime.
    """

    first_offset: int
    last_offset: int
    durable_at: Position | None
    append_time_ms: int | None = None
    is_duplicate: bool = False


class CopiedBatches(NamedTuple):
    """Batches of another log, appended to its copy, whose segments end only where its own do.

    `append_time_ms`: their time in that log.
    """

    append_time_ms: int | None = None
