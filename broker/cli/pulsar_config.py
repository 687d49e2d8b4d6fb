"""`serve --pulsar-config`: settings of a Pulsar broker, from its broker.conf.

ledgerfold serve --data DIR --pulsar-config broker.conf --pulsar-config maxMessageSize=1048576

Settings that exist here take effect, unless an option of `serve` says otherwise. All others are
named in one sentence: settings that only Pulsar has, and unknown ones.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.pulsar_security import NAMES as SECURITY_NAMES
from ledgerfold.broker.cli.pulsar_security import (
    Parser,
    boolean,
    integer,
    parsed,
    where_default,
    with_security,
)
from ledgerfold.broker.cli.settings_files import read_properties
from ledgerfold.broker.cli.verbs import repeated
from ledgerfold.storage.entry import ENTRY_BYTES_MAX
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.broker.common.settings import BrokerSettings

PULSAR_CONFIG = repeated(
    "--pulsar-config FILE|NAME=VALUE",
    "settings of a Pulsar broker: a broker.conf, or one setting; may be repeated, the last value "
    "is used; options of `serve` take precedence",
)
_MINUTE_MS, _MEGABYTE = 60_000, 1024 * 1024
_INT32_MAX = 2**31 - 1
# The length of a sentence.
_NAMED_MAX = 20
_QUOTA_POLICY = "backlogQuotaDefaultRetentionPolicy"
_SIZE_QUOTAS = {
    "backlogQuotaDefaultLimitBytes": 1,
    "backlogQuotaDefaultLimitGB": 1024**3,
}
_AGE_QUOTA = "backlogQuotaDefaultLimitSecond"
_LISTENERS = "advertisedListeners"
INTERNAL_LISTENER = "internalListenerName"
LISTENERS_MAX = 100
_LISTENER = re.compile(r"(?P<name>[-.\w]+):(?P<scheme>[-+.\w]+)://(?P<address>[^\s/,]+:\d{1,5})/?")


def parse_listeners(setting: str, text: str, scheme: str = "pulsar") -> dict[str, str]:
    """Returns the addresses by the listeners' names, as `advertisedListeners` has them; ignores
    those of other protocols. Source: Pulsar's MultipleListenerValidator. Raises InvalidRequest.

    >>> parse_listeners("advertisedListeners", "in:pulsar://10.0.0.1:6650,out:pulsar://b.org:6650")
    {'in': '10.0.0.1:6650', 'out': 'b.org:6650'}
    """
    parts, listeners = text.split(","), dict[str, str]()
    if len(parts) > LISTENERS_MAX:
        raise InvalidRequest(f"{setting} has {len(parts)} parts; the maximum is {LISTENERS_MAX}.")
    for part in parts:
        match = _LISTENER.fullmatch(part.strip())
        if match is None:
            raise InvalidRequest(
                f"{setting}: {part[:100]!r} is not NAME:pulsar://HOST:PORT, separated by commas."
            )
        if match["scheme"] == scheme:
            if match["name"] in listeners:
                raise InvalidRequest(f"{setting}: {match['name']!r} has two addresses.")
            listeners[match["name"]] = match["address"]
    return listeners


def with_internal(listeners: Mapping[str, str], name: str) -> dict[str, str]:
    """Returns the listeners with the internal one first. Raises InvalidRequest."""
    if name not in listeners:
        raise InvalidRequest(f"{INTERNAL_LISTENER}={name[:100]} is not in advertisedListeners.")
    return {name: listeners[name], **listeners}


# The field of BrokerSettings that a setting sets, and the parser of its value.
_FIELDS: dict[str, tuple[str, Parser]] = {
    "activeConsumerFailoverDelayTimeMillis": ("failover_delay_ms", integer()),
    "advertisedListeners": ("pulsar_listeners", parse_listeners),
    "allowAutoTopicCreation": ("creates_topics", boolean),
    "backlogQuotaCheckIntervalInSeconds": ("quota_check_interval_ms", integer(1000, 1)),
    "brokerDeduplicationEnabled": ("deduplicates", boolean),
    "brokerServiceCompactionThresholdInBytes": ("compaction_threshold_bytes", integer()),
    "brokerServiceCompactionMonitorIntervalInSeconds": (
        "compaction_monitor_interval_ms",
        integer(1000, 1),
    ),
    "defaultRetentionSizeInMB": ("retention_bytes", integer(_MEGABYTE, -1)),
    "defaultRetentionTimeInMinutes": ("retention_ms", integer(_MINUTE_MS, -1)),
    "delayedDeliveryEnabled": ("delays_delivery", boolean),
    "maxMessageSize": ("message_bytes_max", integer(1, 1, ENTRY_BYTES_MAX)),
    "maxUnackedMessagesPerConsumer": ("unacked_per_consumer_max", integer(1, 0, _INT32_MAX)),
    "maxUnackedMessagesPerSubscription": (
        "unacked_per_subscription_max",
        integer(1, 0, _INT32_MAX),
    ),
    "retentionCheckIntervalInSeconds": ("retention_check_interval_ms", integer(1000, 1)),
    "subscriptionKeySharedUseConsistentHashing": ("hashes_consistently", boolean),
    "topicCompactionRetainNullKey": ("retain_null_key", boolean),
    "ttlDurationDefaultInSeconds": ("message_ttl_ms", integer(1000)),
}
# The field of StoreSettings.
_STORE: dict[str, tuple[str, Parser]] = {
    "managedLedgerMaxEntriesPerLedger": ("ledger_entries_max", integer(1, 1)),
    "managedLedgerMaxLedgerRolloverTimeMinutes": ("ledger_age_max_ms", integer(_MINUTE_MS, 1)),
    "managedLedgerMaxSizePerLedgerMbytes": ("ledger_bytes_max", integer(_MEGABYTE, 1)),
}
# Behaviours that are fixed here, regardless of the value.
_FIXED = {
    "acknowledgmentAtBatchIndexLevelEnabled": ("true", "batch indexes are always acknowledged"),
    "allowAutoTopicCreationType": ("non-partitioned", "partitioned topics are created explicitly"),
    "isDelayedDeliveryDeliverAtTimeStrict": ("true", "delayed messages are never early"),
    "subscriptionKeySharedConsistentHashingReplicaPoints": ("100", "a consumer has 100 points"),
    "subscriptionKeySharedEnable": ("true", "Key_Shared subscriptions are always possible"),
}


def with_pulsar_config(settings: BrokerSettings, options: argparse.Namespace) -> BrokerSettings:
    """Returns the settings with those of --pulsar-config. Raises InvalidRequest, OSError."""
    pairs: dict[str, str] = {}
    for text in options.pulsar_config:
        if "=" in text and not Path(text).is_file():
            name, _, value = text.partition("=")
            pairs[name.strip()] = value.strip()
        else:
            # As Java reads property files.
            pairs |= read_properties(absolute_path(text).read_text("latin-1"))
    if not pairs:
        return settings
    for sentence in without_effect(pairs):
        print(f"--pulsar-config: {sentence}", file=sys.stderr)
    return configured(settings, pairs)


def configured(settings: BrokerSettings, pairs: Mapping[str, str]) -> BrokerSettings:
    """Returns the settings with Pulsar's, where they have their defaults.

    >>> from ledgerfold.broker.common.settings import BrokerSettings
    >>> configured(BrokerSettings(Path("d")), {"ttlDurationDefaultInSeconds": "5"}).message_ttl_ms
    5000
    """
    changes, in_store = parsed(_FIELDS, pairs) | _quotas(pairs), parsed(_STORE, pairs)
    security = with_security(settings.security, pairs)
    if security.uses_tls and pairs.get(_LISTENERS):
        tls = parse_listeners(_LISTENERS, pairs[_LISTENERS], "pulsar+ssl")
        changes["pulsar_listeners"] = tls
    if internal := pairs.get(INTERNAL_LISTENER):
        changes["pulsar_listeners"] = with_internal(changes.get("pulsar_listeners", {}), internal)
    store = settings.store
    store_settings = replace(store, **where_default(store, type(store)(), in_store))
    default = type(settings)(settings.data_dir)
    return replace(
        settings,
        store=store_settings,
        security=security,
        **where_default(settings, default, changes),
    )


def _quotas(pairs: Mapping[str, str]) -> dict[str, Any]:
    from ledgerfold.v1.records_pb2 import BacklogPolicy, BacklogQuota

    policy = pairs.get(_QUOTA_POLICY) or "producer_request_hold"
    if f"BACKLOG_POLICY_{policy.upper()}" not in dict(BacklogPolicy.items()):
        raise InvalidRequest(
            f"{_QUOTA_POLICY}={policy[:100]}: use producer_request_hold, producer_exception or "
            "consumer_backlog_eviction."
        )
    named = f"BACKLOG_POLICY_{policy.upper()}"
    quotas = dict[str, Any]()
    for name, unit in _SIZE_QUOTAS.items():
        # The setting in bytes takes precedence, as in Pulsar.
        limit = integer(unit, -1)(name, pairs.get(name) or "-1")
        if limit > 0 and "backlog_size_quota" not in quotas:
            quota = BacklogQuota(limit_bytes=limit, limit_ms=-1, policy=named)
            quotas["backlog_size_quota"] = quota
    age_ms = integer(1000, -1)(_AGE_QUOTA, pairs.get(_AGE_QUOTA) or "-1")
    if age_ms > 0:
        quota = BacklogQuota(limit_bytes=-1, limit_ms=age_ms, policy=named)
        quotas["backlog_age_quota"] = quota
    return quotas


def without_effect(pairs: Mapping[str, str]) -> list[str]:
    """Returns sentences about the settings that have no effect.

    >>> without_effect({"subscriptionKeySharedEnable": "false", "zookeeperServers": "here"})
    ['subscriptionKeySharedEnable=false has no effect: Key_Shared subscriptions are always \
possible.', 'These settings are unknown, or have no effect here: zookeeperServers.']
    """
    sentences = [
        f"{name}={pairs[name]} has no effect: {why}."
        for name, (value, why) in _FIXED.items()
        if pairs.get(name, "") not in ("", value)
    ]
    known = {*_FIELDS, *_STORE, *_FIXED, *_SIZE_QUOTAS, *SECURITY_NAMES}
    known |= {_AGE_QUOTA, _QUOTA_POLICY, INTERNAL_LISTENER}
    others = [name for name in pairs if name not in known]
    if others:
        more = len(others) - _NAMED_MAX
        named = ", ".join(others[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        sentences.append(f"These settings are unknown, or have no effect here: {named}.")
    return sentences
