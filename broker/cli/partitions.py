"""`topics create-partitioned-topic` and the like: pulsar-admin's verbs for partitioned topics.

ledgerfold topics create-partitioned-topic orders -p 4
ledgerfold topics partitioned-stats orders --per-partition
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.cli.output import print_document

if TYPE_CHECKING:
    from broker.client.admin import Admin

Commands = argparse._SubParsersAction
Run = Callable[[argparse.Namespace], None]


def add_partition_verbs(verbs: Commands[argparse.ArgumentParser]) -> None:
    def add(name: str, text: str, run: Run, *, topic: bool = True) -> argparse.ArgumentParser:
        parser = verbs.add_parser(name, help=text)
        if topic:
            parser.add_argument("topic")
        parser.set_defaults(run=run)
        return parser

    create = add("create-partitioned-topic", "create a topic and its partitions", _create)
    create.add_argument("-p", "--partitions", type=int, required=True, metavar="N")
    update = add("update-partitioned-topic", "make more partitions", _update)
    update.add_argument("-p", "--partitions", type=int, required=True, metavar="N")
    add("get-partitioned-topic-metadata", "how many partitions; 0: not partitioned", _metadata)
    listing = add("list-partitioned-topics", "list partitioned topics", _list, topic=False)
    listing.add_argument("namespace", nargs="?", default="")
    delete = add("delete-partitioned-topic", "delete it with its partitions", _delete)
    delete.add_argument("-f", "--force", action="store_true", help="disconnect who uses them")
    stats = add("partitioned-stats", "as stats, of all partitions together", _stats)
    stats.add_argument("--per-partition", action="store_true", help="and of each")


def _admin(options: argparse.Namespace) -> Admin:
    from broker.client.admin import Admin

    return Admin(options.url)


def _create(options: argparse.Namespace) -> None:
    _admin(options).create_partitioned_topic(options.topic, options.partitions)


def _update(options: argparse.Namespace) -> None:
    _admin(options).update_partitioned_topic(options.topic, options.partitions)


def _metadata(options: argparse.Namespace) -> None:
    print_document(_admin(options).partitioned_topic_metadata(options.topic))


def _list(options: argparse.Namespace) -> None:
    for topic in _admin(options).list_partitioned_topics(options.namespace):
        print(topic)


def _delete(options: argparse.Namespace) -> None:
    _admin(options).delete_partitioned_topic(options.topic, force=options.force)


def _stats(options: argparse.Namespace) -> None:
    admin = _admin(options)
    print_document(admin.partitioned_stats(options.topic, per_partition=options.per_partition))
