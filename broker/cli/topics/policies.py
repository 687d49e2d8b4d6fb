"""The policies of topics and namespaces: verbs like `set-retention`, in `topics`, `namespaces` and
`topicPolicies`.

ledgerfold topics set-compaction-strategy prices keep-n --set n=3
ledgerfold namespaces set-emulation public/default --profile pulsar-4 exact_backlog=true
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import TOPIC, admin_of
from ledgerfold.broker.cli.output import ANSWER, print_object
from ledgerfold.broker.cli.topics.serve_options import (
    PROFILE_NAMES,
    SCHEMA_STRATEGIES,
    strategy_settings,
)
from ledgerfold.broker.cli.units import (
    LIMIT_SIZE,
    LIMIT_TIME,
    SIZE,
    TIME,
    parse_int32,
    settings_of,
)
from ledgerfold.broker.cli.verbs import (
    Argument,
    Verbs,
    argument,
    defaults,
    flag,
    one_of,
    together,
)
from ledgerfold.storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import Policies

POLICIES = Verbs()
_APPLIED = flag("-ap --applied", "show the value in force, even if it is inherited")
_NAMESPACE = argument("namespace", "TENANT/NAMESPACE")
_QUOTAS = {"destination_storage": "backlog_size_quota", "message_age": "backlog_age_quota"}
_QUOTA_TYPE = argument(
    "-t --type",
    "limit the size of the backlog, or the age of its oldest message",
    choices=tuple(_QUOTAS),
    default="destination_storage",
)
_BACKLOG_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
_EMULATION = ("emulation", "retain_null_key")
_COMPATIBILITY = "schema_compatibility_strategy"


def of_scope(scope: str) -> Argument:
    """Describes the topic or the namespace whose policies a verb is about."""
    return together(TOPIC if scope == "topic" else _NAMESPACE, defaults(scope=scope))


def _scope(options: argparse.Namespace) -> dict[str, Any]:
    return {options.scope: getattr(options, options.scope)}


def _policies(options: argparse.Namespace) -> Policies:
    return admin_of(options).policies(**_scope(options), applied=options.applied)


def _set(options: argparse.Namespace, **values: Any) -> None:
    from ledgerfold.v1.records_pb2 import Policies

    admin_of(options).update_policies(**_scope(options), values=Policies(**values))


def _remove(options: argparse.Namespace, *fields: str) -> None:
    admin_of(options).update_policies(**_scope(options), remove=fields)


def _add_removal(policy: str, help_: str, *fields: str) -> None:
    POLICIES.verb(f"remove-{policy}", help_)(lambda options: _remove(options, *fields))


def _print_value(
    options: argparse.Namespace,
    field: str,
    name: str,
    value_of: Callable[[Any], Any] = lambda value: value,
    text_of: Callable[[Any], str] = str,
) -> None:
    """Prints a policy of one field as `name`, or by default as text; null: it is not set."""
    policies = _policies(options)
    value = value_of(getattr(policies, field)) if policies.HasField(field) else None
    print_object(options, {name: value}, "null" if value is None else text_of(value))


@POLICIES.verb("set-compaction-threshold", "compact above this backlog")
@argument("-t --threshold", "100M; 0: never", **SIZE, required=True)
def _set_threshold(options: argparse.Namespace) -> None:
    _set(options, compaction_threshold_bytes=options.threshold)


@POLICIES.verb("get-compaction-threshold", "show the threshold in bytes", ANSWER, _APPLIED)
def _get_threshold(options: argparse.Namespace) -> None:
    _print_value(options, "compaction_threshold_bytes", "compaction_threshold_bytes")


_add_removal("compaction-threshold", "inherit the threshold", "compaction_threshold_bytes")


@POLICIES.verb("set-retention", "retain raw data that every cursor has passed")
@argument(
    "-t --time", "3d; a number without a unit: seconds; -1: no limit", **LIMIT_TIME, required=True
)
@argument(
    "-s --size", "10G; a number without a unit: bytes; -1: no limit", **LIMIT_SIZE, required=True
)
def _set_retention(options: argparse.Namespace) -> None:
    _set(options, retention_ms=options.time, retention_bytes=options.size)


@POLICIES.verb("get-retention", "show the retention time in ms and size in bytes", ANSWER, _APPLIED)
def _get_retention(options: argparse.Namespace) -> None:
    policies = _policies(options)
    if policies.HasField("retention_ms") or policies.HasField("retention_bytes"):
        document = {"time_ms": policies.retention_ms, "size_bytes": policies.retention_bytes}
        print_object(options, document)
    else:
        print_object(options, {"time_ms": None, "size_bytes": None}, "null")


_add_removal("retention", "inherit retention", "retention_ms", "retention_bytes")


@POLICIES.verb(
    "set-compaction-strategy", "set the strategy that decides what compaction keeps of a key"
)
@argument("strategy", "publishing-order, event-time...: docs/STRATEGIES.md")
@strategy_settings("--set")
def _set_strategy(options: argparse.Namespace) -> None:
    settings = settings_of(options.strategy_settings)
    admin_of(options).set_compaction_strategy(options.strategy, settings, **_scope(options))


@POLICIES.verb("get-compaction-strategy", "show the strategy's name and settings", _APPLIED, ANSWER)
def _get_strategy(options: argparse.Namespace) -> None:
    policies = _policies(options)
    if policies.HasField("compaction_strategy"):
        strategy = policies.compaction_strategy
        print_object(options, {"name": strategy.name, "settings": dict(strategy.settings)})
    else:
        print_object(options, {"name": None, "settings": {}}, "null")


_add_removal("compaction-strategy", "inherit the strategy", "compaction_strategy")


@POLICIES.verb("set-message-ttl", "expire messages older than this")
@argument(
    "-t -ttl --ttl --messageTTL",
    "100 (seconds), 10m, 3d; 0: never",
    **TIME,
    dest="ttl",
    required=True,
)
def _set_ttl(options: argparse.Namespace) -> None:
    _set(options, message_ttl_ms=options.ttl)


@POLICIES.verb("get-message-ttl", "show the message TTL in seconds", _APPLIED, ANSWER)
def _get_ttl(options: argparse.Namespace) -> None:
    _print_value(
        options, "message_ttl_ms", "message_ttl_seconds", lambda ms: ms / 1000, "{:g}".format
    )


_add_removal("message-ttl", "inherit the message TTL", "message_ttl_ms")


@POLICIES.verb("set-schema-compatibility-strategy", "set the compatibility strategy of schemas")
@argument("-c --compatibility", "the strategy", choices=SCHEMA_STRATEGIES, required=True)
def _set_compatibility(options: argparse.Namespace) -> None:
    _set(options, schema_compatibility_strategy=f"{_COMPATIBILITY.upper()}_{options.compatibility}")


@POLICIES.verb(
    "get-schema-compatibility-strategy", "show the compatibility strategy", _APPLIED, ANSWER
)
def _get_compatibility(options: argparse.Namespace) -> None:
    from ledgerfold.broker.schemas.compatibility import strategy_name

    _print_value(options, _COMPATIBILITY, _COMPATIBILITY, strategy_name)


_add_removal("schema-compatibility-strategy", "inherit the compatibility strategy", _COMPATIBILITY)
_SWITCH = one_of(
    flag("-e --enable", "enable it", dest="is_enabled"),
    flag("-d --disable", "disable it", dest="is_disabled"),
    required=True,
)


# Policies that are on or off: the verb, its field, what it does, what it shows.
_SWITCHES = (
    (
        "schema-validation-enforce",
        "schema_validation_enforced",
        "refuse producers without a schema",
        "whether producers without a schema are refused",
    ),
    (
        "is-allow-auto-update-schema",
        "allow_auto_update_schema",
        "let clients add schemas",
        "whether clients may add schemas",
    ),
    (
        "deduplication",
        "deduplication",
        "store a message once, even if a Pulsar client sends it twice",
        "whether a message that is sent twice is stored once",
    ),
)


def _add_switch(verb: str, field: str, effect: str, state: str) -> None:
    @POLICIES.verb(f"set-{verb}", effect, _SWITCH)
    def _set_switch(options: argparse.Namespace) -> None:
        _set(options, **{field: options.is_enabled})

    @POLICIES.verb(f"get-{verb}", f"show {state}", _APPLIED, ANSWER)
    def _get_switch(options: argparse.Namespace) -> None:
        _print_flag(options, field)

    _add_removal(verb, f"inherit {state}", field)


def _print_flag(options: argparse.Namespace, name: str) -> None:
    _print_value(options, name, name, text_of=lambda value: str(value).lower())


for _each in _SWITCHES:
    _add_switch(*_each)


@POLICIES.verb("set-backlog-quota", "limit the size of the backlog, or the age of its messages")
@argument("-l --limit", "10M; -1: no limit", **LIMIT_SIZE, dest="size")
@argument("-lt --limitTime", "1h; -1: no limit", **LIMIT_TIME, dest="age")
@argument("-p --policy", "what to do above the limit", choices=_BACKLOG_POLICIES, required=True)
@_QUOTA_TYPE
def _set_quota(options: argparse.Namespace) -> None:
    from ledgerfold.v1.records_pb2 import BacklogQuota

    is_size = options.type == "destination_storage"
    limit = options.size if is_size else options.age
    if limit is None:
        raise InvalidRequest(f"Give {'--limit' if is_size else '--limitTime'}.")
    policy = f"BACKLOG_POLICY_{options.policy.upper()}"
    size, age = (limit, -1) if is_size else (-1, limit)
    quota = BacklogQuota(limit_bytes=size, limit_ms=age, policy=policy)
    _set(options, **{_QUOTAS[options.type]: quota})


@POLICIES.verb("get-backlog-quotas", "show the quotas", _APPLIED, ANSWER)
def _get_quotas(options: argparse.Namespace) -> None:
    from ledgerfold.v1.records_pb2 import BacklogPolicy

    policies, document = _policies(options), dict[str, Any]()
    for kind, name in _QUOTAS.items():
        if policies.HasField(name):
            quota = getattr(policies, name)
            policy = BacklogPolicy.Name(quota.policy).removeprefix("BACKLOG_POLICY_").lower()
            limits = {"limit_bytes": quota.limit_bytes, "limit_ms": quota.limit_ms}
            document[kind] = {**limits, "policy": policy}
    print_object(options, document)


@POLICIES.verb("remove-backlog-quota", "inherit the quota")
@_QUOTA_TYPE
def _remove_quota(options: argparse.Namespace) -> None:
    _remove(options, _QUOTAS[options.type])


@POLICIES.verb("set-delayed-delivery", "hold delayed messages back, or deliver them at once")
@argument(
    "active true|false",
    "true: hold them back; false: deliver them at once",
    choices=("true", "false"),
)
def _set_delays(options: argparse.Namespace) -> None:
    _set(options, delayed_delivery=options.active == "true")


@POLICIES.verb(
    "get-delayed-delivery", "show whether delayed messages are held back", _APPLIED, ANSWER
)
def _get_delays(options: argparse.Namespace) -> None:
    _print_flag(options, "delayed_delivery")


_add_removal(
    "delayed-delivery", "inherit whether delayed messages are held back", "delayed_delivery"
)


def _add_limit(of: str) -> None:
    policy, field = f"max-unacked-messages-per-{of}", f"max_unacked_messages_per_{of}"
    what = f"the number of unacknowledged messages at which a {of} gets no more"

    @POLICIES.verb(f"set-{policy}", f"set {what}; shared types only")
    @argument("-c -m --maxNum", "0: no limit", type=parse_int32, dest="messages", required=True)
    def _set_limit(options: argparse.Namespace) -> None:
        _set(options, **{field: options.messages})

    @POLICIES.verb(f"get-{policy}", f"show {what}", _APPLIED, ANSWER)
    def _get_limit(options: argparse.Namespace) -> None:
        _print_value(options, field, field)

    _add_removal(policy, f"inherit {what}", field)


for _of in ("consumer", "subscription"):
    _add_limit(_of)


@POLICIES.verb("set-emulation", "set the version of Pulsar or Kafka to emulate")
@argument("--profile", "reset to this profile", choices=PROFILE_NAMES)
@argument("fields FIELD=true|false", "fields of the profile: docs/PROFILES.md", nargs="*")
def _set_emulation(options: argparse.Namespace) -> None:
    from ledgerfold.broker.policies.profiles import parse_policies

    if options.profile is None and not options.fields:
        raise InvalidRequest("Give a --profile, fields like exact_backlog=false, or both.")
    values = parse_policies(options.profile, options.fields)
    admin_of(options).update_policies(**_scope(options), values=values)


@POLICIES.verb("get-emulation", "show the fields that are set")
@flag("-ap --applied", "show all fields in force")
@ANSWER
def _get_emulation(options: argparse.Namespace) -> None:
    policies = _policies(options)
    document = {field.name: value for field, value in policies.emulation.ListFields()}
    if policies.HasField("retain_null_key"):
        document["retain_null_key"] = policies.retain_null_key
    print_object(options, document)


@POLICIES.verb("remove-emulation", "inherit fields")
@argument("fields FIELD", "default: all", nargs="*")
def _remove_emulation(options: argparse.Namespace) -> None:
    fields = options.fields or _EMULATION
    _remove(options, *(name if name in _EMULATION else f"emulation.{name}" for name in fields))
