"""Which Pulsar and which Kafka are emulated: profiles, and the fields in which they differ. Pure.

`documented` does what the documentations promise, without the known bugs, `pulsar-4` what Pulsar
4.0.7 does, `kafka-4.1` what Kafka 4.1.0 does, each on its own kind of topics. Each difference
is one field here, and each can be set alone. docs/PROFILES.md is the table of them for users;
tests/unit/policies/test_profiles.py holds the two together.

A profile and fields may be set on the broker (`serve --profile`, `--emulate`), a namespace and a
topic. A level that names a profile starts anew from it, `pulsar-4` and `kafka-4.1` with the fields
of their own; its fields, and those of a level that names none, change single values.

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
    """A field whose value in that profile is the opposite. `rule`: of docs/PROFILES.md."""
    value: bool = field(default=documented, metadata={"rule": rule, "profile": profile})
    return value


def _defect(rule: str) -> bool:
    """One of Kafka 4.1.0."""
    return _differs(rule, documented=False, profile=KAFKA_4_1)


@dataclass(frozen=True, slots=True)
class Emulation:
    """The values in force. The defaults are those of `documented`."""

    # Compacted messages that retention (a time or size limit above 0) removed are not readable.
    retention_hides_compacted: bool = _differs("15.1", documented=True)
    # A connected reader that a run overtakes goes on in the raw ledgers, tombstones included.
    lagging_readers_get_tombstones: bool = _differs("8.10", documented=True)
    # A trigger starts no run when nothing was published since the horizon.
    skip_run_without_new_data: bool = _differs("10.2", documented=True)
    # A read-compacted seek by time lands in the view, instead of looking at raw ledgers only.
    seek_by_time_reads_view: bool = _differs("8.11", documented=True)
    # `__compaction` cannot be deleted after a failed run until the topic is loaded anew.
    failed_run_blocks_disabling: bool = _differs("7.1", documented=False)
    # Raw ledgers of a topic without any durable cursor are trimmed.
    trim_without_cursor: bool = _differs("15.4", documented=False)
    # Acknowledging a compacted entry covers the superseded ones before it.
    acks_pass_compacted_out: bool = _differs("9.2", documented=True)
    # Truncating a topic removes its compacted ledger, too.
    truncate_drops_compacted: bool = _differs("15.7", documented=True)
    # Compaction status and stats outlive an unload and a restart.
    status_survives_unload: bool = _differs("10.3", documented=True)
    # The compaction status of a partitioned topic is that of its partitions together.
    partitioned_status: bool = _differs("10.5", documented=True)
    # The threshold is compared with exact bytes, not with an estimate from averages.
    exact_backlog: bool = _differs("11.3", documented=True)
    # `__compaction` can be moved by hand, over what no run has seen, too.
    compaction_cursor_moves: bool = _differs("6.6", documented=False)
    # What strategic compaction leaves of a batch is numbered anew.
    strategic_renumbers: bool = _differs("13.4", documented=False)
    # Of Kafka topics. What was aborted in front of a round's first batch is open again for its map.
    map_reopens_aborted: bool = _defect("K8")
    # A round ends half-way where the index of a new segment is full.
    full_index_fails_round: bool = _defect("K10")
    # Of a broker's gauges, one is nonsense before the first round, one is missing at times.
    gauges_with_defects: bool = _defect("K18")
    # A producer's batches are known again for as long as the times of its records say, no longer.
    resends_by_record_time: bool = _defect("K9")


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
    """What is in force; `levels` from the broker's to the topic's."""
    values = _documented
    for level in levels:
        if level.HasField("profile"):
            own = _OWN.get(level.profile)
            values = _documented if own is None else replace(values, **own)
        changes = {name: getattr(level, name) for name in FIELDS if level.HasField(name)}
        values = replace(values, **changes)
    return values


def in_force(values: Emulation) -> Settings:
    """The same as a message, with every field set."""
    return Settings(**{name: getattr(values, name) for name in FIELDS})


def changes_of(profile: str) -> list[str]:
    """What a profile is, field by field: to be named beside another one.

    >>> changes_of("kafka-4.1")[0]
    'map_reopens_aborted=true'
    """
    return [f"{name}={str(value).lower()}" for name, value in _OWN.get(profile, {}).items()]


def parse_settings(profile: str | None, changes: list[str]) -> Settings:
    """From text: a profile's name and changes like "exact_backlog=false".

    Raises InvalidRequest, which names what there is.

    >>> parse_settings(None, ["exact_backlog=false"]).exact_backlog
    False
    """
    settings = Settings(profile=profile)
    for change in changes:
        name, _, value = change.partition("=")
        if name not in FIELDS:
            raise InvalidRequest(f"No field {name!r} in a profile; there are {', '.join(FIELDS)}.")
        if value not in ("true", "false"):
            raise InvalidRequest(f"{name} is true or false, not {value!r}.")
        setattr(settings, name, value == "true")
    check_settings(settings)
    return settings


def parse_policies(profile: str | None, changes: list[str]) -> Policies:
    """As parse_settings, with the one field that is a policy of its own in Pulsar, too.

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
    """Raises InvalidRequest for a profile that does not exist."""
    if settings.HasField("profile") and settings.profile not in PROFILES:
        names = ", ".join(PROFILES)
        raise InvalidRequest(f"No profile is called {settings.profile!r}; there are {names}.")
