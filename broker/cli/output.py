"""Printing: tables on a terminal, JSON lines in a pipe, or as `-o` says."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.client import Message

Row = Mapping[str, Any]


def add_output(parser: argparse.ArgumentParser, choices: Sequence[str]) -> None:
    parser.add_argument("-o", "--output", choices=choices, help="default: for people on a terminal")


def wants_table(options: argparse.Namespace) -> bool:
    chosen = getattr(options, "output", None)
    return chosen in ("table", "text") or (chosen is None and sys.stdout.isatty())


def print_rows(options: argparse.Namespace, rows: Iterable[Row]) -> None:
    """A table, or a JSON object a line."""
    if not wants_table(options):
        for row in rows:
            print(json.dumps(row))
        return
    listed = list(rows)
    if listed:
        print(aligned(listed))


def aligned(rows: Sequence[Row]) -> str:
    """Columns by name, numbers to the right."""
    names = list(rows[0])
    cells = [[str(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    right = [all(isinstance(row[name], int | float) for row in rows) for name in names]

    def line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(names), *map(line, cells)])


def print_document(document: Any) -> None:
    """One object, as pulsar-admin prints it."""
    print(json.dumps(document, indent=2))


def message_row(message: Message) -> dict[str, Any]:
    """A message as JSON. A value that is no UTF-8 stands in base64."""
    value, encoding = _text(message.data())
    row: dict[str, Any] = {
        "id": message_id_text(message),
        "key": message.partition_key() if message.has_key() else None,
        "value": None if message.has_null_value() else value,
        "tombstone": not message.data(),
        "properties": message.properties(),
        "event_time": message.event_timestamp(),
        "publish_time": message.publish_timestamp(),
        "producer": message.producer_name(),
        "sequence_id": message.sequence_id(),
    }
    if encoding != "utf-8":
        row["encoding"] = encoding
    return row


def message_text(message: Message) -> str:
    """id, key, value on a line."""
    key = message.partition_key() if message.has_key() else "-"
    value, _ = _text(message.data())
    return f"{message_id_text(message):<14} {key:<20} {value if message.data() else '(tombstone)'}"


def message_id_text(message: Message) -> str:
    """ "ledger:entry", and ":index" in a batch."""
    at = message.message_id()
    text = f"{at.ledger_id()}:{at.entry_id()}"
    return text if at.batch_index() < 0 else f"{text}:{at.batch_index()}"


def print_message(options: argparse.Namespace, message: Message) -> None:
    if options.output == "json":
        print(json.dumps(message_row(message), indent=2))
    elif wants_table(options):
        print(message_text(message))
    else:
        print(json.dumps(message_row(message)))


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
