"""`topics`, `tenants`, `namespaces` and `topicPolicies`: the verbs of pulsar-admin that apply."""

from __future__ import annotations

import argparse

from ledgerfold.broker.cli.connecting import TOPIC, admin_of
from ledgerfold.broker.cli.kafka import logs
from ledgerfold.broker.cli.kafka.config import CREATION_OPTIONS, config_verbs, created_with
from ledgerfold.broker.cli.output import (
    ANSWER,
    message_id_text,
    print_answer,
    print_id,
    print_object,
)
from ledgerfold.broker.cli.start_positions import ID, parse_message_id, topic_of
from ledgerfold.broker.cli.topics import archives, compaction, messages, properties
from ledgerfold.broker.cli.topics.namespaces import NAMESPACES, PERMISSIONS, TENANTS
from ledgerfold.broker.cli.topics.policies import POLICIES, of_scope
from ledgerfold.broker.cli.units import MOMENT, POSITIVE, TIME, parse_positive
from ledgerfold.broker.cli.verbs import Verbs, argument, defaults, flag, one_of
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import FORM
from ledgerfold.storage.text import counted

_SUBSCRIPTION = argument("-s --subscription", "the subscription's name", required=True)
_NAMESPACE = argument("namespace", "default: all", nargs="?", default="")
_FORCE = flag("-f --force", "disconnect its clients")
_SINCE = argument(
    "-d --datetime", "2024-01-31T12:00:00+00:00, or ms since the epoch", **MOMENT, required=True
)
_START = argument(
    f"-m --message-id earliest|latest|{ID}", "start after this message", default="latest"
)
_EXPIRE_TIME = "-t --expire-time", "expire messages published longer ago: 100 (seconds), 10m, 3d"
COMMANDS = Verbs()
VERBS = COMMANDS.command(
    "topics",
    "manage topics, their policies and compaction",
    compaction.VERBS,
    messages.VERBS,
    properties.VERBS,
    config_verbs("a Kafka topic's settings", TOPIC),
    logs.VERBS,
    archives.VERBS,
    POLICIES.having(of_scope("topic")),
    PERMISSIONS.having(of_scope("topic")),
)
COMMANDS.command("tenants", "create, list and delete tenants", TENANTS)
COMMANDS.command(
    "namespaces",
    "create, list and delete namespaces; manage their policies and permissions",
    NAMESPACES,
    POLICIES.having(of_scope("namespace")),
    PERMISSIONS.having(of_scope("namespace")),
)
COMMANDS.command(
    "topicPolicies",
    "manage policies of topics, as in pulsar-admin",
    POLICIES.having(of_scope("topic")),
)


@VERBS.verb("create", "create a topic", TOPIC, properties.METADATA, CREATION_OPTIONS)
def _create(options: argparse.Namespace) -> None:
    given = properties.properties_of(options.metadata)
    admin_of(options).create_topic(options.topic, kafka=created_with(options), properties=given)


@VERBS.verb("delete", "delete a topic and its data", TOPIC, _FORCE)
def _delete(options: argparse.Namespace) -> None:
    admin_of(options).delete_topic(options.topic, force=options.force)


@VERBS.verb("list", "list topics", _NAMESPACE, ANSWER)
def _list(options: argparse.Namespace) -> None:
    topics = admin_of(options).list_topics(options.namespace)
    print_answer(options, ({"topic": each} for each in topics), topics)


@VERBS.verb("stats", "show counters, subscriptions, last compaction", TOPIC, ANSWER)
def _stats(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).stats(options.topic))


@VERBS.verb("stats-internal", "show ledgers, cursors, compacted ledger", TOPIC, ANSWER)
def _stats_internal(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).internal_stats(options.topic))


@VERBS.verb("unload", "close and reload the topic", TOPIC)
def _unload(options: argparse.Namespace) -> None:
    admin_of(options).unload(options.topic)


@VERBS.verb("trim", "delete ledgers that are no longer needed", TOPIC, ANSWER)
def _trim(options: argparse.Namespace) -> None:
    removed = admin_of(options).trim(options.topic)
    print_object(options, {"ledgers_removed": removed}, f"{counted(removed, 'ledger')} removed")


@VERBS.verb("truncate", "delete all data of a topic, and move subscriptions to the end", TOPIC)
def _truncate(options: argparse.Namespace) -> None:
    admin_of(options).truncate(options.topic)


@VERBS.verb("terminate", "permanently forbid publishing to a topic", TOPIC, ANSWER)
def _terminate(options: argparse.Namespace) -> None:
    last_id = message_id_text(admin_of(options).terminate(options.topic))
    print_object(options, {"id": last_id}, f"Topic successfully terminated at {last_id}")


@VERBS.verb("last-message-id", "show the last message's id", TOPIC, ANSWER)
@flag("--read-compacted", "show the last message of the compacted view")
def _last_message_id(options: argparse.Namespace) -> None:
    last = admin_of(options).last_message_id(options.topic, read_compacted=options.read_compacted)
    print_id(options, last)


@VERBS.verb(
    "get-message-id", "show the id of the first message since a time", TOPIC, ANSWER, _SINCE
)
def _get_message_id(options: argparse.Namespace) -> None:
    message_id = admin_of(options).message_id_by_timestamp(options.topic, options.datetime)
    print_id(options, message_id)


@VERBS.verb("subscriptions", "list subscriptions", TOPIC, ANSWER)
def _subscriptions(options: argparse.Namespace) -> None:
    subscriptions = admin_of(options).list_subscriptions(options.topic)
    print_answer(options, ({"subscription": each} for each in subscriptions), subscriptions)


@VERBS.verb(
    "create-subscription",
    "create a durable subscription",
    *(TOPIC, _SUBSCRIPTION, _START, properties.PROPERTIES),
)
def _subscribe(options: argparse.Namespace) -> None:
    start = parse_message_id(options.message_id)
    if start is None:
        raise InvalidRequest(f"The start of a subscription must be earliest, latest or {FORM}.")
    topic = topic_of(options.topic, start)
    given = properties.properties_of(options.property)
    admin_of(options).create_subscription(topic, options.subscription, start, properties=given)


@VERBS.verb("unsubscribe", "delete a subscription", TOPIC, _SUBSCRIPTION)
@flag("-f --force", "disconnect its consumers")
def _unsubscribe(options: argparse.Namespace) -> None:
    admin_of(options).unsubscribe(options.topic, options.subscription, force=options.force)


# Partitioned topics.


@VERBS.verb("create-partitioned-topic", "create a topic and its partitions", TOPIC)
@argument("-p --partitions", "the number of partitions", **POSITIVE, required=True)
@properties.METADATA
@CREATION_OPTIONS
def _create_partitioned(options: argparse.Namespace) -> None:
    admin_of(options).create_partitioned_topic(
        options.topic,
        options.partitions,
        kafka=created_with(options),
        properties=properties.properties_of(options.metadata),
    )


@VERBS.verb("update-partitioned-topic", "add partitions", TOPIC)
@argument("-p --partitions", "the new number of partitions", **POSITIVE, required=True)
def _update_partitioned(options: argparse.Namespace) -> None:
    admin_of(options).update_partitioned_topic(options.topic, options.partitions)


@VERBS.verb(
    "get-partitioned-topic-metadata",
    "show the number of partitions; 0: not partitioned",
    TOPIC,
    ANSWER,
)
def _metadata(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).partitioned_topic_metadata(options.topic))


@VERBS.verb("list-partitioned-topics", "list partitioned topics", _NAMESPACE, ANSWER)
def _list_partitioned(options: argparse.Namespace) -> None:
    topics = admin_of(options).list_partitioned_topics(options.namespace)
    print_answer(options, ({"topic": each} for each in topics), topics)


@VERBS.verb("delete-partitioned-topic", "delete a topic with its partitions", TOPIC, _FORCE)
def _delete_partitioned(options: argparse.Namespace) -> None:
    admin_of(options).delete_partitioned_topic(options.topic, force=options.force)


@VERBS.verb("partitioned-stats", "show stats, summed over all partitions", TOPIC)
@flag("--per-partition", "also show the stats of each partition")
@ANSWER
def _partitioned_stats(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    stats = admin.partitioned_stats(options.topic, per_partition=options.per_partition)
    print_object(options, stats)


# Cursors.


# The lower decorator declares the first verb.
@VERBS.verb(
    "expire-messages-all-subscriptions",
    "expire messages older than a time, on every subscription",
    *(TOPIC, defaults(subscription="", position=None)),
    *(argument(*_EXPIRE_TIME, **TIME, required=True), ANSWER),
)
@VERBS.verb(
    "expire-messages",
    "expire messages older than a time, or up to a message",
    *(TOPIC, _SUBSCRIPTION, ANSWER),
    one_of(
        argument(*_EXPIRE_TIME, **TIME),
        argument(f"-p --position {ID}", "expire messages up to this one, including its batch"),
        required=True,
    ),
)
def _expire(options: argparse.Namespace) -> None:
    topic, through = options.topic, None
    if options.position is not None:
        through = parse_message_id(options.position)
        if through is None or options.position in ("earliest", "latest"):
            raise InvalidRequest(f"{options.position!r} is not a message id: expected {FORM}.")
        topic = topic_of(topic, through)
    expired = admin_of(options).expire_messages(
        topic, options.subscription, options.expire_time, through=through
    )
    text = f"{counted(expired, 'entry', 'entries')} expired"
    print_object(options, {"entries_expired": expired}, text)


@VERBS.verb(
    "reset-cursor", "move a subscription to a message, or back to a time", TOPIC, _SUBSCRIPTION
)
@one_of(
    argument("-t --time", "move back by this time: 10m, 3d", **TIME),
    argument(f"-m --message-id earliest|latest|{ID}", "move to this message"),
    required=True,
)
@flag("-e --exclude-reset-position", "start after the message")
def _reset(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    if options.time is not None:
        admin.reset_cursor(options.topic, options.subscription, ago_ms=options.time)
        return
    message_id = parse_message_id(options.message_id)
    if message_id is None:
        raise InvalidRequest(
            f"{options.message_id!r} is not a message id: expected earliest, latest or {FORM}."
        )
    admin.reset_cursor(
        topic_of(options.topic, message_id),
        options.subscription,
        message_id,
        inclusive=not options.exclude_reset_position,
    )


@VERBS.verb("skip", "skip entries of the backlog", TOPIC, _SUBSCRIPTION)
@argument("-n --count", "the number of entries", type=parse_positive, required=True)
@ANSWER
def _skip(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    _print_skipped(options, admin.skip_messages(options.topic, options.subscription, options.count))


@VERBS.verb("clear-backlog", "skip the whole backlog", TOPIC, _SUBSCRIPTION, ANSWER)
def _clear(options: argparse.Namespace) -> None:
    _print_skipped(options, admin_of(options).clear_backlog(options.topic, options.subscription))


def _print_skipped(options: argparse.Namespace, skipped: int) -> None:
    text = f"{counted(skipped, 'entry', 'entries')} skipped"
    print_object(options, {"entries_skipped": skipped}, text)
