"""Profiles: the emulated versions of Pulsar and Kafka, and the fields in which they differ. Pure.

`documented` behaves as documented, without the known bugs, `pulsar-4` like Pulsar 4.0.7,
`kafka-4.1` like Kafka 4.1.0, each on its own kind of topics. Each difference is one field here, and
each can be set separately. docs/PROFILES.md is their table for users;
tests/unit/policies/test_profiles.py keeps the two consistent.

A profile and fields may be set on the broker (`serve --profile`, `--emulate`), a namespace and a
topic. A level that names a profile resets all fields to it, or only Pulsar's with `pulsar-4`, and
only Kafka's with `kafka-4.1`. A level may also set single fields.

  >>> values = emulation(Settings(profile="pulsar-4"), Settings(exact_backlog=True))
  >>> values.exact_backlog, values.trim_without_cursor
  (True, True)
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Final

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import Emulation as Settings
from ledgerfold.v1.records_pb2 import Policies

DOCUMENTED: Final = "documented"
PULSAR_4: Final = "pulsar-4"
KAFKA_4_1: Final = "kafka-4.1"


def _differs(rule: str, *, documented: bool, profile: str = PULSAR_4) -> bool:
    """Declares a field with the opposite value in `profile`. `rule`: that of docs/PROFILES.md."""
    value: bool = field(default=documented, metadata={"rule": rule, "profile": profile})
    return value


def _defect(rule: str) -> bool:
    """Declares a defect of Kafka 4.1.0."""
    return _differs(rule, documented=False, profile=KAFKA_4_1)


@dataclass(frozen=True, slots=True)
class Emulation:
    """The values in force. The defaults are those of `documented`."""

    # Compacted messages that retention (a time or size limit above 0) removed are not readable.
    retention_hides_compacted: bool = _differs("15.1", documented=True)
    # A connected reader that a run overtakes continues in the raw ledgers, with tombstones.
    lagging_readers_get_tombstones: bool = _differs("8.10", documented=True)
    # A trigger starts no run if nothing was published since the horizon.
    skip_run_without_new_data: bool = _differs("10.2", documented=True)
    # A read-compacted seek by time searches the view, not only the raw ledgers.
    seek_by_time_reads_view: bool = _differs("8.11", documented=True)
    # `__compaction` cannot be deleted after a failed run until the topic is reloaded.
    failed_run_blocks_disabling: bool = _differs("7.1", documented=False)
    # Raw ledgers of a topic without any durable cursor are trimmed.
    trim_without_cursor: bool = _differs("15.4", documented=False)
    # Acknowledging a compacted entry covers the superseded ones before it.
    acks_pass_compacted_out: bool = _differs("9.2", documented=True)
    # Truncating a topic removes its compacted ledger, too.
    truncate_drops_compacted: bool = _differs("15.7", documented=True)
    # Compaction status and stats outlive an unload and a restart.
    status_survives_unload: bool = _differs("10.3", documented=True)
    # The compaction status of a partitioned topic combines those of its partitions.
    partitioned_status: bool = _differs("10.5", documented=True)
    # The threshold is compared with exact bytes, not with an estimate from averages.
    exact_backlog: bool = _differs("11.3", documented=True)
    # `__compaction` can be moved manually, even past entries that no run has read.
    compaction_cursor_moves: bool = _differs("6.6", documented=False)
    # Messages that strategic compaction leaves of a batch are renumbered.
    strategic_renumbers: bool = _differs("13.4", documented=False)
    # Kafka: transactions aborted before a cleaning's first batch count as open for its map.
    map_reopens_aborted: bool = _defect("K8")
    # Kafka: a cleaning fails midway when the index of a new segment is full.
    full_index_fails_round: bool = _defect("K10")
    # Kafka: one broker gauge is wrong before the first cleaning, one is sometimes missing.
    gauges_with_defects: bool = _defect("K18")
    # Kafka: a producer's state expires by its records' timestamps.
    resends_by_record_time: bool = _defect("K9")
    # Pulsar: an empty value whose client does not send its size is not a tombstone.
    unsized_empties_survive: bool = _differs("2.4", documented=False)


FIELDS: Final = tuple(each.name for each in fields(Emulation))
RULES: Final = {each.name: str(each.metadata["rule"]) for each in fields(Emulation)}
_documented = Emulation()
# The values of a profile's own fields.
_OWN: Final = {
    profile: {
        each.name: not getattr(_documented, each.name)
        for each in fields(Emulation)
        if each.metadata["profile"] == profile
    }
    for profile in (PULSAR_4, KAFKA_4_1)
}
PROFILES: Final = {
    DOCUMENTED: _documented,
    **{profile: replace(_documented, **values) for profile, values in _OWN.items()},
}


def emulation(*levels: Settings) -> Emulation:
    """Returns the values in force; `levels` from the broker's to the topic's."""
    values = _documented
    for level in levels:
        if level.HasField("profile"):
            own = _OWN.get(level.profile)
            values = _documented if own is None else replace(values, **own)
        changes = {name: getattr(level, name) for name in FIELDS if level.HasField(name)}
        values = replace(values, **changes)
    return values


def in_force(values: Emulation) -> Settings:
    """Converts to a message with every field set."""
    return Settings(**{name: getattr(values, name) for name in FIELDS})


def changes_of(profile: str) -> list[str]:
    """Returns a profile's own fields as changes, to combine it with another profile.

    >>> changes_of("kafka-4.1")[0]
    'map_reopens_aborted=true'
    """
    return [f"{name}={str(value).lower()}" for name, value in _OWN.get(profile, {}).items()]


def parse_settings(profile: str | None, changes: list[str]) -> Settings:
    """Parses a profile's name and changes like "exact_backlog=false".

    Raises InvalidRequest, which lists the valid names.

    >>> parse_settings(None, ["exact_backlog=false"]).exact_backlog
    False
    """
    settings = Settings(profile=profile)
    for change in changes:
        name, _, value = change.partition("=")
        if name not in FIELDS:
            known = ", ".join(FIELDS)
            raise InvalidRequest(f"Unknown profile field {name!r}; known fields: {known}.")
        if value not in ("true", "false"):
            raise InvalidRequest(f"{name} must be true or false, not {value!r}.")
        setattr(settings, name, value == "true")
    check_settings(settings)
    return settings


def parse_policies(profile: str | None, changes: list[str]) -> Policies:
    """Parses like parse_settings(), including the one field that is a separate policy in Pulsar.

    >>> parse_policies(None, ["retain_null_key=true"]).retain_null_key
    True
    """
    policies, own = Policies(), {"retain_null_key=true": True, "retain_null_key=false": False}
    for change in changes:
        if change in own:
            policies.retain_null_key = own[change]
    settings = parse_settings(profile, [each for each in changes if each not in own])
    policies.emulation.CopyFrom(settings)
    return policies


def check_settings(settings: Settings) -> None:
    """Raises InvalidRequest for an unknown profile."""
    if settings.HasField("profile") and settings.profile not in PROFILES:
        names = ", ".join(PROFILES)
        raise InvalidRequest(f"Unknown profile {settings.profile!r}; known profiles: {names}.")
