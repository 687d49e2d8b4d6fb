"""`import`: a CSV or JSON-lines file as a keyed topic."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from broker.cli.messages import Outgoing, client_of
from storage.errors import InvalidRequest

Commands = argparse._SubParsersAction


def add_import(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "import", help="publish a CSV or JSON-lines file, keyed by a field"
    )
    parser.set_defaults(run=_import)
    parser.add_argument("file", metavar="FILE.csv|FILE.jsonl|-")
    parser.add_argument("--key", required=True, metavar="FIELD")
    parser.add_argument("--topic", help="default: the file's name")
    parser.add_argument("--format", choices=("csv", "jsonl"), help="default: by the file's ending")
    parser.add_argument("--event-time", metavar="FIELD", help="ms since the epoch")
    parser.add_argument(
        "--tombstone-when", metavar="FIELD=VALUE", help="such a row deletes its key"
    )


def read_rows(lines: Iterable[str], format_: str) -> Iterator[dict[str, Any]]:
    """The rows of a file, with its field names. Raises InvalidRequest, naming the line."""
    if format_ == "csv":
        yield from csv.DictReader(lines)
        return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidRequest(f"Line {number} is no JSON: {error}") from error
        if not isinstance(row, dict):
            raise InvalidRequest(f"Line {number} is no JSON object.")
        yield row


def to_message(row: dict[str, Any], key: str, tombstone_when: str | None) -> Outgoing:
    """The row as JSON under its key, or a tombstone. Raises InvalidRequest without the field."""
    if row.get(key) is None:
        raise InvalidRequest(f"A row without {key!r}: {json.dumps(row)[:120]}")
    if tombstone_when is not None:
        field, _, value = tombstone_when.partition("=")
        if str(row.get(field)) == value:
            return Outgoing(str(row[key]), None)
    return Outgoing(str(row[key]), json.dumps(row, separators=(",", ":")).encode())


@contextmanager
def _opened(name: str) -> Iterator[IO[str]]:
    if name == "-":
        yield sys.stdin
    else:
        with Path(name).open(newline="", encoding="utf-8-sig") as file:
            yield file


def _format(options: argparse.Namespace) -> str:
    if options.format:
        return str(options.format)
    ending = Path(options.file).suffix.lstrip(".").lower()
    if ending not in ("csv", "jsonl"):
        raise InvalidRequest(f"{options.file}: say --format csv or --format jsonl.")
    return ending


def _import(options: argparse.Namespace) -> int:
    if options.topic is None and options.file == "-":
        raise InvalidRequest("Standard input has no name: say --topic.")
    topic = options.topic or Path(options.file).stem
    format_ = _format(options)
    count = tombstones = 0
    errors: list[object] = []
    client = client_of(options)
    try:
        producer = client.create_producer(topic, batching_enabled=True)
        with _opened(options.file) as lines:
            for row in read_rows(lines, format_):
                message = to_message(row, options.key, options.tombstone_when)
                producer.send_async(
                    message.value,
                    lambda result, at: errors.append(result) if at is None else None,
                    partition_key=message.key,
                    event_timestamp=_event_time(row, options.event_time),
                )
                count += 1
                tombstones += message.value is None
        producer.flush()
    finally:
        client.close()
    if errors:
        print(f"ledgerfold: {len(errors)} rows were not stored: {errors[0]}", file=sys.stderr)
        return 1
    print(f"{count} rows imported into {topic}, {tombstones} of them tombstones", file=sys.stderr)
    return 0


def _event_time(row: dict[str, Any], field: str | None) -> int | None:
    if field is None:
        return None
    try:
        return int(row[field])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"{field!r} is no time in ms: {row.get(field)!r}") from error
