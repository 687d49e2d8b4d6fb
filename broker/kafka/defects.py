"""Defects of Kafka 4.1.0: which of them are wanted (the profile `kafka-4.1`, docs/PROFILES.md)."""

from __future__ import annotations

from typing import NamedTuple


class Defects(NamedTuple):
    """The names are those of the profile's fields (broker/policies/profiles.py)."""

    map_reopens_aborted: bool = False
    full_index_fails_round: bool = False
    gauges_with_defects: bool = False
    resends_by_record_time: bool = False


NO_DEFECTS = Defects()
