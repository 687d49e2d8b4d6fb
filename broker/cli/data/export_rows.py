"""`export parquet`, `export csv`, `export jsonl`: a topic's messages as rows of a file.

    ledgerfold export parquet orders orders.parquet --read-compacted
    ledgerfold export jsonl orders orders.jsonl --data /backups/data

Parquet has the columns of `ledgerfold.frames` (docs/FRAMES.md). Lines of JSON are those of
`ledgerfold read -o jsonl`, and CSV has the same fields. The file is written under a temporary name,
synced and renamed: if an export is interrupted, no file remains, and it can be repeated. If it is
killed, FILE.PID.tmp remains, which may be deleted.

Bounds: those of one record batch (ledgerfold/frames/reading.py).
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ledgerfold.broker.cli.connecting import TOPIC, credentials_of, refuse_url
from ledgerfold.broker.cli.data import export_kafka
from ledgerfold.broker.cli.ending import removed_on_failure
from ledgerfold.broker.cli.output import content, to_json
from ledgerfold.broker.cli.verbs import argument, flag, repeated, together
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import id_text
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

# Record batches of pyarrow, which this module does not import.
Batches = Iterator[Any]
COMMANDS = export_kafka.COMMANDS
_FIELDS = (
    "id",
    "offset",
    "key",
    "key_encoding",
    "value",
    "encoding",
    "tombstone",
    "properties",
    "event_time",
    "publish_time",
    "producer",
    "sequence_id",
)
_OPTIONS = together(
    TOPIC,
    argument("file", "the new file"),
    flag("--read-compacted", "export the compacted view, and the messages after it"),
    argument(
        "--data DIR",
        "a data directory that no broker serves, or a snapshot, instead of --url",
        type=absolute_path,
    ),
    repeated("--key KEY", "export only messages of this key; may be repeated", dest="keys"),
    flag("--overwrite", "replace the file if it exists"),
)


@export_kafka.EXPORT.verb("parquet", "write messages as a Parquet file", _OPTIONS)
def _parquet(options: argparse.Namespace) -> None:
    from ledgerfold.frames.parquet import parquet_blocks

    _export(options, parquet_blocks)


@export_kafka.EXPORT.verb("csv", "write messages as a CSV file", _OPTIONS)
def _csv(options: argparse.Namespace) -> None:
    _export(options, _csv_blocks)


@export_kafka.EXPORT.verb("jsonl", "write messages as lines of JSON", _OPTIONS)
def _jsonl(options: argparse.Namespace) -> None:
    _export(options, lambda batches: map(_json_lines, batches))


def _export(options: argparse.Namespace, encode: Callable[[Batches], Iterator[bytes]]) -> None:
    from ledgerfold import frames
    from ledgerfold.storage.files import Files, replace_file

    if options.data is not None:
        refuse_url(options, "--data")
    path = absolute_path(options.file)
    if path.exists() and not (options.overwrite and path.is_file()):
        raise InvalidRequest(f"{path} exists: give another name, or --overwrite for a file.")
    batches = frames.batches(
        options.topic,
        url=None if options.data is not None else options.url,
        data=options.data,
        compacted=options.read_compacted,
        keys=options.keys or None,
        **({} if options.data is not None else credentials_of(options)),
    )
    rows = 0
    # Two exports to one file do not share a temporary file.
    files = Files(attempt=os.getpid())

    def count() -> Batches:
        nonlocal rows
        for batch in batches:
            rows += len(batch)
            yield batch

    try:
        with removed_on_failure(path, files):
            replace_file(path, encode(count()), files)
    finally:
        batches.close()
    print(f"{counted(rows, 'message')} exported to {path}", file=sys.stderr)


def _csv_blocks(batches: Batches) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.DictWriter(text, _FIELDS, restval="")
    writer.writeheader()
    for batch in batches:
        for row in _rows(batch):
            texts = {name: to_json(row[name]) for name in ("tombstone", "properties")}
            writer.writerow(row | texts)
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()


def _json_lines(batch: Any) -> bytes:
    return "".join(f"{to_json(row)}\n" for row in _rows(batch)).encode()


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yields messages as `read -o jsonl` prints them."""
    for name in ("event_time", "publish_time"):
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, batch.column(name).cast("int64"))
    for row in batch.to_pylist():
        offset, pairs = row["offset"], row["properties"]
        if pairs is None:
            pairs = [
                (each["key"], (each["value"] or b"").decode(errors="backslashreplace"))
                for each in row["headers"]
            ]
        shown = content(row["key"], row["value"])
        if offset is not None:
            shown["tombstone"] = row["value"] is None
        ids = (row["ledger_id"], row["entry_id"], row["partition"], row["batch_index"])
        yield {
            "id": id_text(*ids),
            **({} if offset is None else {"offset": offset}),
            **shown,
            "properties": dict(pairs),
            "event_time": _time_of(row),
            "publish_time": row["publish_time"],
            "producer": row["producer_name"],
            "sequence_id": row["sequence_id"],
        }


def _time_of(row: dict[str, Any]) -> int:
    """Returns the event time; without one, 0, or -1 on a Kafka topic, as a reader does."""
    time: int | None = row["event_time"]
    if time is None:
        return 0 if row["offset"] is None else -1
    return time
