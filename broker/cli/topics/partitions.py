"""pulsar-admin's verbs for partitioned topics, such as `topics create-partitioned-topic`.

ledgerfold topics create-partitioned-topic orders -p 4
ledgerfold topics partitioned-stats orders --per-partition
"""

from __future__ import annotations

import argparse

from ledgerfold.broker.cli.connecting import TOPIC, admin_of
from ledgerfold.broker.cli.kafka.config import CREATION_OPTIONS, created_with
from ledgerfold.broker.cli.output import ANSWER, print_answer, print_object
from ledgerfold.broker.cli.units import POSITIVE
from ledgerfold.broker.cli.verbs import Verbs, argument, flag

VERBS = Verbs()


@VERBS.verb("create-partitioned-topic", "create a topic and its partitions", TOPIC)
@argument("-p --partitions", "the number of partitions", **POSITIVE, required=True)
@CREATION_OPTIONS
def _create(options: argparse.Namespace) -> None:
    admin_of(options).create_partitioned_topic(
        options.topic, options.partitions, kafka=created_with(options)
    )


@VERBS.verb("update-partitioned-topic", "add partitions", TOPIC)
@argument("-p --partitions", "the new number of partitions", **POSITIVE, required=True)
def _update(options: argparse.Namespace) -> None:
    admin_of(options).update_partitioned_topic(options.topic, options.partitions)


@VERBS.verb(
    "get-partitioned-topic-metadata",
    "show the number of partitions; 0: not partitioned",
    TOPIC,
    ANSWER,
)
def _metadata(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).partitioned_topic_metadata(options.topic))


@VERBS.verb("list-partitioned-topics", "list partitioned topics")
@argument("namespace", "default: all", nargs="?", default="")
@ANSWER
def _list(options: argparse.Namespace) -> None:
    found = admin_of(options).list_partitioned_topics(options.namespace)
    print_answer(options, ({"topic": each} for each in found), found)


@VERBS.verb("delete-partitioned-topic", "delete a topic with its partitions", TOPIC)
@flag("-f --force", "disconnect its clients")
def _delete(options: argparse.Namespace) -> None:
    admin_of(options).delete_partitioned_topic(options.topic, force=options.force)


@VERBS.verb("partitioned-stats", "show stats, summed over all partitions", TOPIC)
@flag("--per-partition", "also for each partition")
@ANSWER
def _stats(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    stats = admin.partitioned_stats(options.topic, per_partition=options.per_partition)
    print_object(options, stats)
