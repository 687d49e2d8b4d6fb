"""Printing: tables on a terminal, JSON lines in a pipe, or as `-o` says.

What people read is escaped: a key or value with line breaks or terminal codes in it stays on its
line and steers nothing. What is no UTF-8 stands in base64.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledgerfold.broker.client import Message, MessageId

Row = Mapping[str, Any]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def add_output(parser: argparse.ArgumentParser, choices: Sequence[str]) -> None:
    people, pipe = choices[0], choices[-1]
    text = f"default: {people} on a terminal, {pipe} in a pipe"
    parser.add_argument("-o", "--output", choices=choices, help=text)


def wants_table(options: argparse.Namespace) -> bool:
    chosen = getattr(options, "output", None)
    return chosen in ("table", "text") or (chosen is None and sys.stdout.isatty())


def print_rows(options: argparse.Namespace, rows: Iterable[Row]) -> None:
    """A table, or a JSON object a line; when `rows` ends with an error, those before it."""
    if not wants_table(options):
        for row in rows:
            print(to_json(row))
        return
    listed: list[Row] = []
    try:
        listed.extend(rows)
    finally:
        if listed:
            print(aligned(listed))
    if not listed:
        print("(none)", file=sys.stderr)


def aligned(rows: Sequence[Row]) -> str:
    """Columns by name, numbers to the right."""
    from rich.cells import cell_len

    names = list(rows[0])
    cells = [[printable(str(row[name])) for name in names] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    right = [all(isinstance(row[name], int | float) for row in rows) for name in names]

    def line(values: Sequence[str]) -> str:
        padded = []
        for value, width, to_right in zip(values, widths, right, strict=True):
            space = " " * (width - cell_len(value))
            padded.append(space + value if to_right else value + space)
        return "  ".join(padded).rstrip()

    return "\n".join([line(names), *map(line, cells)])


def printable(text: str) -> str:
    """On one line, without control characters: "a\\nb" for a line break."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def to_json(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False)


def print_document(document: Any) -> None:
    """One object, as pulsar-admin prints it."""
    print(to_json(document, indent=2))


def message_row(message: Message) -> dict[str, Any]:
    """A message as JSON."""
    return {
        "id": message_id_text(message.message_id()),
        **content(_key(message), message.value()),
        "properties": message.properties(),
        "event_time": message.event_timestamp(),
        "publish_time": message.publish_timestamp(),
        "producer": message.producer_name(),
        "sequence_id": message.sequence_id(),
    }


def content(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Key and value of a message as JSON; None: it has none."""
    row: dict[str, Any] = {"key": None, "value": None, "tombstone": not value}
    for name, data, encoding_name in (
        ("key", key, "key_encoding"),
        ("value", value, "encoding"),
    ):
        if data is not None:
            row[name], encoding = _text(data)
            if encoding != "utf-8":
                row[encoding_name] = encoding
    return row


def message_text(message: Message) -> str:
    """id, key, value on a line."""
    data = message.data()
    return (
        f"{message_id_text(message.message_id()):<14} {_shown(_key(message), '(no key)'):<20} "
        f"{_shown(data or None, '(tombstone)')}"
    )


def message_id_text(message_id: MessageId) -> str:
    """ "ledger:entry", and ":index" in a batch; on a partition all four parts, as in Python."""
    if message_id.partition() >= 0:
        return str(message_id)
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}"
    index = message_id.batch_index()
    return text if index < 0 else f"{text}:{index}"


def print_message(options: argparse.Namespace, message: Message) -> None:
    if options.output == "json":
        print_document(message_row(message))
    elif wants_table(options):
        print(message_text(message))
    else:
        print(to_json(message_row(message)))


def _key(message: Message) -> bytes | None:
    if not message.has_key():
        return None
    return message.partition_key().encode(errors="surrogateescape")


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _shown(data: bytes | None, absent: str) -> str:
    if data is None:
        return absent
    text, encoding = _text(data)
    return printable(text) if encoding == "utf-8" else f"base64:{text}"
