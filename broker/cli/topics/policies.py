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


def scope_of(options: argparse.Namespace) -> dict[str, Any]:
    return {options.scope: getattr(options, options.scope)}


def _policies(options: argparse.Namespace) -> Policies:
    return admin_of(options).policies(**scope_of(options), applied=options.applied)


def _set(options: argparse.Namespace, **values: Any) -> None:
    from ledgerfold.v1.records_pb2 import Policies

    admin_of(options).update_policies(**scope_of(options), values=Policies(**values))


def _remove(options: argparse.Namespace, *fields: str) -> None:
    admin_of(options).update_policies(**scope_of(options), remove=fields)


def _add_removal(policy: str, inherited: str, *fields: str) -> None:
    help_ = f"inherit {inherited}"
    POLICIES.verb(f"remove-{policy}", help_)(lambda options: _remove(options, *fields))


def _add_policy(
    policy: str,
    field: str,
    effect: str,
    shown: str,
    value: Argument,
    inherited: str = "",
    *,
    name: str = "",
    value_of: Callable[[Any], Any] = lambda value: value,
    stored: Callable[[Any], Any] = lambda value: value,
) -> None:
    """Adds the three verbs of a policy of one field.

    `value`: the argument `value`, which is stored as `stored` returns it. `name`: the name under
    which `value_of` the field is shown, if not that of the field.
    """

    @POLICIES.verb(f"set-{policy}", effect, value)
    def _set_value(options: argparse.Namespace) -> None:
        _set(options, **{field: stored(options.value)})

    @POLICIES.verb(f"get-{policy}", f"show {shown}", _APPLIED, ANSWER)
    def _get_value(options: argparse.Namespace) -> None:
        policies = _policies(options)
        found = value_of(getattr(policies, field)) if policies.HasField(field) else None
        print_object(options, {name or field: found}, _text(found))

    _add_removal(policy, inherited or shown, field)


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


_add_policy(
    "compaction-threshold",
    "compaction_threshold_bytes",
    "compact above this backlog",
    "the threshold in bytes",
    argument("-t --threshold", "100M; 0: never", **SIZE, required=True, dest="value"),
    "the threshold",
)


@POLICIES.verb("set-retention", "retain raw data that every cursor has passed")
@argument(
    "-t --time", "3d; a number without a unit: seconds; -1: no limit", **LIMIT_TIME, required=True
)
@argument(
    "-s --size", "10G; a number without a unit: bytes; -1: no limit", **LIMIT_SIZE, required=True
)
def _set_retention(options: argparse.Namespace) -> None:
    _set(options, retention_ms=options.time, retention_bytes=options.size)


@POLICIES.verb("get-retention", "show the retention time in ms and size in bytes", _APPLIED, ANSWER)
def _get_retention(options: argparse.Namespace) -> None:
    policies = _policies(options)
    if policies.HasField("retention_ms") or policies.HasField("retention_bytes"):
        document = {"time_ms": policies.retention_ms, "size_bytes": policies.retention_bytes}
        print_object(options, document)
    else:
        print_object(options, {"time_ms": None, "size_bytes": None}, "null")


_add_removal("retention", "retention", "retention_ms", "retention_bytes")


@POLICIES.verb(
    "set-compaction-strategy", "set the strategy that decides what compaction keeps of a key"
)
@argument("strategy", "publishing-order, event-time...: docs/STRATEGIES.md")
@strategy_settings("--set")
def _set_strategy(options: argparse.Namespace) -> None:
    settings = settings_of(options.strategy_settings)
    admin_of(options).set_compaction_strategy(options.strategy, settings, **scope_of(options))


@POLICIES.verb("get-compaction-strategy", "show the strategy's name and settings", _APPLIED, ANSWER)
def _get_strategy(options: argparse.Namespace) -> None:
    policies = _policies(options)
    if policies.HasField("compaction_strategy"):
        strategy = policies.compaction_strategy
        print_object(options, {"name": strategy.name, "settings": dict(strategy.settings)})
    else:
        print_object(options, {"name": None, "settings": {}}, "null")


_add_removal("compaction-strategy", "the strategy", "compaction_strategy")
_add_policy(
    "message-ttl",
    "message_ttl_ms",
    "expire messages older than this",
    "the message TTL in seconds",
    argument(
        "-t -ttl --ttl --messageTTL",
        "100 (seconds), 10m, 3d; 0: never",
        **TIME,
        dest="value",
        required=True,
    ),
    "the message TTL",
    name="message_ttl_seconds",
    value_of=lambda ms: ms / 1000,
)


def _compatibility(value: int) -> str:
    from ledgerfold.broker.schemas.compatibility import strategy_name

    return strategy_name(value)


_add_policy(
    "schema-compatibility-strategy",
    _COMPATIBILITY,
    "set the compatibility strategy of schemas",
    "the compatibility strategy",
    argument(
        "-c --compatibility",
        "the strategy",
        choices=SCHEMA_STRATEGIES,
        required=True,
        dest="value",
    ),
    value_of=_compatibility,
    stored=lambda strategy: f"{_COMPATIBILITY.upper()}_{strategy}",
)
_SWITCH = one_of(
    argument("-e --enable", "enable it", action="store_const", const=True, dest="value"),
    argument("-d --disable", "disable it", action="store_const", const=False, dest="value"),
    required=True,
)
_add_policy(
    "schema-validation-enforce",
    "schema_validation_enforced",
    "refuse producers without a schema",
    "whether producers without a schema are refused",
    _SWITCH,
)
_add_policy(
    "is-allow-auto-update-schema",
    "allow_auto_update_schema",
    "let clients add schemas",
    "whether clients may add schemas",
    _SWITCH,
)
_add_policy(
    "deduplication",
    "deduplication",
    "store a message once, even if a Pulsar client sends it twice",
    "whether a message that is sent twice is stored once",
    _SWITCH,
)


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


_add_policy(
    "delayed-delivery",
    "delayed_delivery",
    "hold delayed messages back, or deliver them at once",
    "whether delayed messages are held back",
    argument(
        "value true|false",
        "true: hold them back; false: deliver them at once",
        choices=("true", "false"),
    ),
    stored=lambda text: text == "true",
)
for _of in ("consumer", "subscription"):
    _limit = f"the number of unacknowledged messages at which a {_of} gets no more"
    _add_policy(
        f"max-unacked-messages-per-{_of}",
        f"max_unacked_messages_per_{_of}",
        f"set {_limit}; shared types only",
        _limit,
        argument(
            "-c -m --maxNum MESSAGES", "0: no limit", type=parse_int32, dest="value", required=True
        ),
    )


@POLICIES.verb("set-emulation", "set the version of Pulsar or Kafka to emulate")
@argument("--profile", "reset to this profile", choices=PROFILE_NAMES)
@argument("fields FIELD=true|false", "fields of the profile: docs/PROFILES.md", nargs="*")
def _set_emulation(options: argparse.Namespace) -> None:
    from ledgerfold.broker.policies.profiles import parse_policies

    if options.profile is None and not options.fields:
        raise InvalidRequest("Give a --profile, fields like exact_backlog=false, or both.")
    values = parse_policies(options.profile, options.fields)
    admin_of(options).update_policies(**scope_of(options), values=values)


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
