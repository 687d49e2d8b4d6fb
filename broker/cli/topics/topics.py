"""`topics`, `namespaces` and `topicPolicies`: pulsar-admin's verbs, as far as they apply."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.kafka.config import (
    add_creation_options,
    add_topic_config_verbs,
    created_with,
)
from ledgerfold.broker.cli.kafka.logs import add_log_verbs
from ledgerfold.broker.cli.output import add_answer, print_answer, print_id, print_object
from ledgerfold.broker.cli.start_positions import ID, parse_message_id, topic_of
from ledgerfold.broker.cli.topics.compaction import add_compaction_verbs
from ledgerfold.broker.cli.topics.cursors import add_cursor_verbs
from ledgerfold.broker.cli.topics.emulation import add_emulation_verbs
from ledgerfold.broker.cli.topics.message_ttl import add_message_ttl_verbs
from ledgerfold.broker.cli.topics.operations import add_operation_verbs
from ledgerfold.broker.cli.topics.partitions import add_partition_verbs
from ledgerfold.broker.cli.topics.strategies import add_strategy_verbs
from ledgerfold.broker.cli.units import (
    parse_limit_ms,
    parse_limit_size,
    parse_moment_ms,
    parse_size,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import FORM
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import Policies

Commands = argparse._SubParsersAction
Run = Callable[[argparse.Namespace], int | None]


def add_topics(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("topics", help="manage topics, their policies and compaction")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    add_creation_options(_verb(verbs, "create", "create a topic", _create))
    delete = _verb(verbs, "delete", "delete a topic and its data", _delete)
    delete.add_argument("-f", "--force", action="store_true", help="disconnect its clients")
    listing = verbs.add_parser("list", help="list topics")
    listing.add_argument("namespace", nargs="?", default="", help="default: all")
    listing.set_defaults(run=_list)
    add_answer(listing)
    _answering(verbs, "stats", "show counters, subscriptions, last compaction", _stats)
    _answering(verbs, "stats-internal", "show ledgers, cursors, compacted ledger", _stats_internal)
    _verb(verbs, "unload", "close and reload the topic", _unload)
    _answering(verbs, "trim", "delete ledgers that are no longer needed", _trim)
    add_operation_verbs(verbs)
    last = _answering(verbs, "last-message-id", "show the last message's id", _last_message_id)
    last.add_argument("--read-compacted", action="store_true", help="in the compacted view")
    found = _answering(
        verbs, "get-message-id", "show the id of the first message since a time", _get_message_id
    )
    found.add_argument(
        *("-d", "--datetime"),
        type=parse_moment_ms,
        required=True,
        metavar="TIME",
        help="2024-01-31T12:00:00+00:00, or ms since the epoch",
    )
    _answering(verbs, "subscriptions", "list subscriptions", _subscriptions)
    create = _verb(verbs, "create-subscription", "create a durable subscription", _subscribe)
    create.add_argument("-s", "--subscription", required=True, help="the subscription's name")
    create.add_argument(
        "-m",
        "--message-id",
        default="latest",
        metavar=f"earliest|latest|{ID}",
        help="start after this message",
    )
    leave = _verb(verbs, "unsubscribe", "delete a subscription", _unsubscribe)
    leave.add_argument("-s", "--subscription", required=True, help="the subscription's name")
    leave.add_argument("-f", "--force", action="store_true", help="disconnect its consumers")
    add_partition_verbs(verbs)
    add_cursor_verbs(verbs)
    add_compaction_verbs(verbs)
    add_topic_config_verbs(verbs)
    add_log_verbs(verbs)
    _add_policies(verbs, "topic")


def add_namespaces(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("namespaces", help="manage policies of namespaces")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_policies(verbs, "namespace")


def add_topic_policies(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "topicPolicies", help="manage policies of topics, as in pulsar-admin"
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_policies(verbs, "topic")


def _verb(
    verbs: Commands[argparse.ArgumentParser], name: str, text: str, run: Run, of: str = "topic"
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text)
    add_name(parser, of)
    parser.set_defaults(run=run)
    return parser


def _answering(
    verbs: Commands[argparse.ArgumentParser], name: str, text: str, run: Run
) -> argparse.ArgumentParser:
    """Adds a verb that prints a result."""
    parser = _verb(verbs, name, text, run)
    add_answer(parser)
    return parser


def _add_policies(verbs: Commands[argparse.ArgumentParser], of: str) -> None:
    def add(name: str, text: str, run: Run) -> argparse.ArgumentParser:
        parser = _verb(verbs, name, text, run, of)
        parser.set_defaults(scope=of)
        if name.startswith("get-"):
            add_answer(parser)
        return parser

    threshold = add("set-compaction-threshold", "compact above this backlog", _set_threshold)
    threshold.add_argument(
        *("-t", "--threshold"),
        type=parse_size,
        required=True,
        metavar="SIZE",
        help="100M; 0: never",
    )
    get = add("get-compaction-threshold", "show the threshold in bytes", _get_threshold)
    get.add_argument("-ap", "--applied", action="store_true", help="including an inherited one")
    add("remove-compaction-threshold", "inherit the threshold", _remove_threshold)
    retention = add("set-retention", "retain raw data that every cursor has passed", _set_retention)
    for option, kind, metavar, example in (
        (("-t", "--time"), parse_limit_ms, "TIME|-1", "3d; -1: no limit"),
        (("-s", "--size"), parse_limit_size, "SIZE|-1", "10G; -1: no limit"),
    ):
        retention.add_argument(*option, type=kind, required=True, metavar=metavar, help=example)
    get = add("get-retention", "show time in ms and size in bytes", _get_retention)
    get.add_argument("-ap", "--applied", action="store_true", help="including an inherited one")
    add("remove-retention", "inherit retention", _remove_retention)
    add_strategy_verbs(verbs, of)
    add_message_ttl_verbs(verbs, of)
    add_emulation_verbs(verbs, of)


def _create(options: argparse.Namespace) -> None:
    admin_of(options).create_topic(options.topic, kafka=created_with(options))


def _delete(options: argparse.Namespace) -> None:
    admin_of(options).delete_topic(options.topic, force=options.force)


def _list(options: argparse.Namespace) -> None:
    found = admin_of(options).list_topics(options.namespace)
    print_answer(options, ({"topic": each} for each in found), found)


def _stats(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).stats(options.topic))


def _stats_internal(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).internal_stats(options.topic))


def _unload(options: argparse.Namespace) -> None:
    admin_of(options).unload(options.topic)


def _trim(options: argparse.Namespace) -> None:
    removed = admin_of(options).trim(options.topic)
    print_object(options, {"ledgers_removed": removed}, f"{counted(removed, 'ledger')} removed")


def _last_message_id(options: argparse.Namespace) -> None:
    last = admin_of(options).last_message_id(options.topic, read_compacted=options.read_compacted)
    print_id(options, last)


def _get_message_id(options: argparse.Namespace) -> None:
    found = admin_of(options).message_id_by_timestamp(options.topic, options.datetime)
    print_id(options, found)


def _subscriptions(options: argparse.Namespace) -> None:
    found = admin_of(options).list_subscriptions(options.topic)
    print_answer(options, ({"subscription": each} for each in found), found)


def _subscribe(options: argparse.Namespace) -> None:
    start = parse_message_id(options.message_id)
    if start is None:
        raise InvalidRequest(f"The start of a subscription must be earliest, latest or {FORM}.")
    topic = topic_of(options.topic, start)
    admin_of(options).create_subscription(topic, options.subscription, start)


def _unsubscribe(options: argparse.Namespace) -> None:
    admin_of(options).unsubscribe(options.topic, options.subscription, force=options.force)


def _policies(options: argparse.Namespace) -> Policies:
    name, applied = getattr(options, options.scope), options.applied
    if options.scope == "topic":
        return admin_of(options).policies(topic=name, applied=applied)
    return admin_of(options).policies(namespace=name, applied=applied)


def _update(options: argparse.Namespace, values: Policies | None, remove: Sequence[str]) -> None:
    name = getattr(options, options.scope)
    if options.scope == "topic":
        admin_of(options).update_policies(topic=name, values=values, remove=remove)
    else:
        admin_of(options).update_policies(namespace=name, values=values, remove=remove)


def _set_threshold(options: argparse.Namespace) -> None:
    from ledgerfold.v1.records_pb2 import Policies

    values = Policies(compaction_threshold_bytes=options.threshold)
    _update(options, values, ())


def _get_threshold(options: argparse.Namespace) -> None:
    policies = _policies(options)
    is_set = policies.HasField("compaction_threshold_bytes")
    threshold = policies.compaction_threshold_bytes if is_set else None
    text = "null" if threshold is None else str(threshold)
    print_object(options, {"compaction_threshold_bytes": threshold}, text)


def _remove_threshold(options: argparse.Namespace) -> None:
    _update(options, None, ["compaction_threshold_bytes"])


def _set_retention(options: argparse.Namespace) -> None:
    from ledgerfold.v1.records_pb2 import Policies

    values = Policies(retention_ms=options.time, retention_bytes=options.size)
    _update(options, values, ())


def _get_retention(options: argparse.Namespace) -> None:
    policies = _policies(options)
    if policies.HasField("retention_ms") or policies.HasField("retention_bytes"):
        document = {"time_ms": policies.retention_ms, "size_bytes": policies.retention_bytes}
        print_object(options, document)
    else:
        print_object(options, {"time_ms": None, "size_bytes": None}, "null")


def _remove_retention(options: argparse.Namespace) -> None:
    _update(options, None, ["retention_ms", "retention_bytes"])
