"""Which Pulsar is emulated: two profiles, and the fields in which they differ. Pure.

`documented` does what Pulsar's documentation promises, without the known bugs; `pulsar-4` does what
Pulsar 4.0.7 does. Each difference is one field here, and each can be set alone. docs/PROFILES.md is
the table of them for users; tests/unit/policies/test_profiles.py holds the two together.

A profile and fields may be set on the broker (`serve --profile`, `--emulate`), a namespace and a
topic. A level that names a profile starts anew from it; its fields, and those of a level that names
none, change single values.

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


def _differs(rule: str, *, documented: bool) -> bool:
    """A field whose value in `pulsar-4` is the opposite. `rule`: of docs/PROFILES.md."""
    value: bool = field(default=documented, metadata={"rule": rule})
    return value


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


FIELDS: Final = tuple(each.name for each in fields(Emulation))
RULES: Final = {each.name: str(each.metadata["rule"]) for each in fields(Emulation)}
_documented = Emulation()
PROFILES: Final = {
    DOCUMENTED: _documented,
    PULSAR_4: Emulation(**{name: not getattr(_documented, name) for name in FIELDS}),
}


def emulation(*levels: Settings) -> Emulation:
    """What is in force; `levels` from the broker's to the topic's."""
    values = _documented
    for level in levels:
        if level.HasField("profile"):
            values = PROFILES[level.profile]
        changes = {name: getattr(level, name) for name in FIELDS if level.HasField(name)}
        values = replace(values, **changes)
    return values


def in_force(values: Emulation) -> Settings:
    """The same as a message, with every field set."""
    return Settings(**{name: getattr(values, name) for name in FIELDS})


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
        names = " and ".join(PROFILES)
        raise InvalidRequest(f"No profile is called {settings.profile!r}; there are {names}.")
