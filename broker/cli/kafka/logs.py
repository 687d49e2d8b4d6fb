"""`topics roll`, `delete-records`, `truncate-log`, `describe-log`: the log of a Kafka topic.

ledgerfold topics describe-log orders --batches
ledgerfold topics describe-log orders --from 50000
ledgerfold topics delete-records orders 1000
ledgerfold topics truncate-log orders 90000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import starmap
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import TOPIC, admin_of, partitions_of
from ledgerfold.broker.cli.output import (
    ANSWER,
    DOCUMENT,
    print_answer,
    print_object,
    wants_table,
    width_of,
)
from ledgerfold.broker.cli.tables import Row, aligned, fields_of
from ledgerfold.broker.cli.units import parse_count
from ledgerfold.broker.cli.verbs import Verbs, argument, flag

if TYPE_CHECKING:
    from ledgerfold.broker.client.administration.kafka_answers import LogDescription

VERBS = Verbs()
_ALL = -1


def _offset(text: str) -> int:
    try:
        offset = int(text)
    except ValueError:
        offset = -2
    if offset < _ALL or offset >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset of 0 or more, or -1")
    return offset


@VERBS.verb("roll", "roll a Kafka topic's active segment", TOPIC, ANSWER)
def _roll(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    topics = partitions_of(admin, options.topic)
    # Printed one by one: a later one may fail.
    rolled = ((each, admin.kafka.roll_segment(each)) for each in topics)

    def line(topic: str, base: int) -> str:
        whose = "" if topic == options.topic else f" of {topic}"
        return f"The active segment{whose} begins at offset {base}."

    rows = ({"topic": topic, "base_offset": base} for topic, base in rolled)
    print_answer(options, rows, starmap(line, rolled))


@VERBS.verb(
    "delete-records",
    "delete a Kafka topic's records below an offset; its cleanup.policy must include delete",
    TOPIC,
)
@argument("offset", "the new log start offset; -1: the high watermark", type=_offset)
@ANSWER
def _delete(options: argparse.Namespace) -> None:
    offset = None if options.offset == _ALL else options.offset
    start = admin_of(options).kafka.set_log_start(options.topic, offset)
    print_object(options, {"log_start_offset": start}, f"The log begins at offset {start}.")


@VERBS.verb("truncate-log", "delete a Kafka topic's records from an offset on", TOPIC)
@argument(
    "offset",
    "the new log end offset; a batch that extends beyond it is deleted whole",
    type=parse_count,
)
@ANSWER
def _truncate(options: argparse.Namespace) -> None:
    left = admin_of(options).kafka.truncate_log(options.topic, options.offset)
    cleaned = "" if left.checkpoint is None else f" It is clean up to {left.checkpoint}."
    print_object(
        options,
        {"log_end_offset": left.log_end_offset, "checkpoint": left.checkpoint},
        f"The log ends at offset {left.log_end_offset}.{cleaned}",
    )


@VERBS.verb("describe-log", "show a Kafka topic's offsets, segments, producers, batches", TOPIC)
@flag("--batches", "include batches, a page of 4 MiB")
@argument(
    "--from OFFSET",
    "start of the page; default: the log start offset",
    dest="start",
    type=parse_count,
)
@DOCUMENT
def _describe(options: argparse.Namespace) -> None:
    wants_batches = options.batches or options.start is not None
    admin = admin_of(options)
    documents = dict[str, Any]()
    for topic in partitions_of(admin, options.topic):
        log = admin.kafka.describe_log(
            topic, batches=wants_batches, batches_from=options.start or 0
        )
        documents[topic] = log_document(log, batches=wants_batches)
    is_whole = list(documents) == [options.topic]
    if not wants_table(options):
        whole = documents[options.topic] if is_whole else {"partitions": documents}
        print_object(options, whole)
        return
    for at, (topic, document) in enumerate(documents.items()):
        if not is_whole:
            print(f"{chr(10) if at else ''}{topic}")
        _print_table(document, width_of(options))


def _print_table(document: dict[str, Any], width: int | None) -> None:
    for name, value in document.items():
        if not isinstance(value, list):
            print(f"{name:<20}{'-' if value in (None, '') else value}")
    for name, rows in document.items():
        if isinstance(rows, list) and rows:
            print(f"\n{name}\n{aligned(rows, width)}")


def log_document(log: LogDescription, *, batches: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        **fields_of(log, "log_start_offset log_end_offset high_watermark last_stable_offset"),
        **fields_of(log, "checkpoint cleaning_state"),
        "uncleanable": log.uncleanable_reason,
        "uncleanable_kind": log.uncleanable_kind,
        "segments": [
            {
                **fields_of(each, "base_offset next_offset size_bytes"),
                **fields_of(each, "largest_timestamp_ms modified_ms"),
                "active": each.is_active,
                "cleaned": each.is_cleaned,
            }
            for each in log.segments
        ],
        "producers": [
            {
                "producer_id": each.producer_id,
                "epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_offset": each.last_data_offset,
                "last_timestamp_ms": each.last_timestamp_ms,
                "transaction_from": each.transaction_first_offset,
                "forgotten": each.is_forgotten,
            }
            for each in log.producers
        ],
        "aborted": [
            fields_of(each, "producer_id first_offset last_offset last_stable_offset")
            for each in log.aborted
        ],
    }
    if batches:
        document["batches"] = list(_batches(log.batches))
        document["more_from"] = log.more_from
    return document


def _batches(batches: Iterable[bytes]) -> Iterable[Row]:
    from ledgerfold.storage.kafka.batch import read_batch_header
    from ledgerfold.storage.kafka.compression import KafkaCompression
    from ledgerfold.storage.kafka.records import marker_type

    for batch in batches:
        header, marker = read_batch_header(batch), marker_type(batch)
        yield {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "size_bytes": header.size_bytes,
            "compression": KafkaCompression(header.compression).name.lower(),
            "max_timestamp_ms": header.max_timestamp_ms,
            "producer_id": header.producer_id,
            "epoch": header.producer_epoch,
            "first_sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "marker": "" if marker is None else marker.name.lower(),
            "delete_horizon_ms": header.delete_horizon_ms,
        }
