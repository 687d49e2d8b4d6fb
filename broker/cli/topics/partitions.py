"""pulsar-admin's verbs for partitioned topics, such as `topics create-partitioned-topic`.

ledgerfold topics create-partitioned-topic orders -p 4
ledgerfold topics partitioned-stats orders --per-partition
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.kafka.config import add_creation_options, created_with
from ledgerfold.broker.cli.output import add_answer, print_answer, print_object
from ledgerfold.broker.cli.units import parse_positive

Commands = argparse._SubParsersAction
Run = Callable[[argparse.Namespace], None]


def add_partition_verbs(verbs: Commands[argparse.ArgumentParser]) -> None:
    def add(name: str, text: str, run: Run, *, topic: bool = True) -> argparse.ArgumentParser:
        parser = verbs.add_parser(name, help=text)
        if topic:
            add_name(parser)
        parser.set_defaults(run=run)
        return parser

    create = add("create-partitioned-topic", "create a topic and its partitions", _create)
    _add_partitions(create, "the number of partitions")
    add_creation_options(create)
    update = add("update-partitioned-topic", "add partitions", _update)
    _add_partitions(update, "the new number of partitions")
    text = "show the number of partitions; 0: not partitioned"
    add_answer(add("get-partitioned-topic-metadata", text, _metadata))
    listing = add("list-partitioned-topics", "list partitioned topics", _list, topic=False)
    listing.add_argument("namespace", nargs="?", default="", help="default: all")
    add_answer(listing)
    delete = add("delete-partitioned-topic", "delete a topic with its partitions", _delete)
    delete.add_argument("-f", "--force", action="store_true", help="disconnect its clients")
    stats = add("partitioned-stats", "show stats, summed over all partitions", _stats)
    stats.add_argument("--per-partition", action="store_true", help="also for each partition")
    add_answer(stats)


def _add_partitions(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "-p", "--partitions", type=parse_positive, required=True, metavar="N", help=text
    )


def _create(options: argparse.Namespace) -> None:
    admin_of(options).create_partitioned_topic(
        options.topic, options.partitions, kafka=created_with(options)
    )


def _update(options: argparse.Namespace) -> None:
    admin_of(options).update_partitioned_topic(options.topic, options.partitions)


def _metadata(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).partitioned_topic_metadata(options.topic))


def _list(options: argparse.Namespace) -> None:
    found = admin_of(options).list_partitioned_topics(options.namespace)
    print_answer(options, ({"topic": each} for each in found), found)


def _delete(options: argparse.Namespace) -> None:
    admin_of(options).delete_partitioned_topic(options.topic, force=options.force)


def _stats(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    stats = admin.partitioned_stats(options.topic, per_partition=options.per_partition)
    print_object(options, stats)
