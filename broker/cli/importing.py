"""`import`: a CSV or JSON-lines file as a keyed topic.

A row becomes a message: the text of one field is the key, the row the value, or the text of another
field. (What those texts are says import_rows.py.) What is wrong with a row is said with its line
number; the rows before it are imported then, and with `--on-error skip` those behind it, too.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ledgerfold.broker.cli.connecting import client_of
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.import_kafka import (
    KAFKA_LOG,
    add_kafka_log,
    import_kafka_log,
    refuse_kafka_options,
)
from ledgerfold.broker.cli.import_rows import Row, Rows, opened, read_rows
from ledgerfold.broker.cli.producing import Outgoing, send_all
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.words import counted

Commands = argparse._SubParsersAction
_INT64_MAX = 2**63 - 1


class RowRules(NamedTuple):
    """How rows become messages. `value` None: the whole row is the value."""

    key: str
    value: str | None = None
    event_time: str | None = None
    # FIELD and VALUE of --tombstone-when.
    tombstone: tuple[str, str] | None = None

    @property
    def fields(self) -> list[str]:
        """Those that they speak of."""
        tombstone = self.tombstone[0] if self.tombstone else None
        named = (self.key, self.value, self.event_time, tombstone)
        return list(dict.fromkeys(name for name in named if name is not None))


def add_import(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "import", help="publish a CSV or JSON-lines file, keyed by a field"
    )
    parser.set_defaults(run=_import)
    add = parser.add_argument
    add("file", metavar="FILE.csv|FILE.jsonl|-|kafka-log", help="-: standard input")
    add("--key", metavar="FIELD", help="its text is the key")
    add(
        "--value",
        metavar="FIELD",
        help="its text is the value, null a tombstone; default: the row as JSON, a JSON line as it "
        "is",
    )
    add("--topic", help="default: the file's name")
    add("--format", choices=("csv", "jsonl"), help="default: by the file's ending")
    add("--event-time", metavar="FIELD", help="ms since the epoch")
    add("--tombstone-when", metavar="FIELD=VALUE", help="such a row deletes its key")
    add(
        "--on-error",
        choices=("skip", "stop"),
        default="stop",
        help="at a row that cannot be imported; skip ends with 1 if it skipped any; default stop",
    )
    add_kafka_log(parser)


def to_message(row: Row, rules: RowRules) -> Outgoing:
    """The row as a message, or a tombstone. Raises InvalidRequest, naming the line."""
    key = _sayable(row, rules.key)
    if not key:
        raise InvalidRequest(f"Line {row.line} has no {rules.key!r}, which is to be the key.")
    event_time_ms = None
    if rules.event_time is not None:
        text = row.texts.get(rules.event_time) or ""
        if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > _INT64_MAX:
            raise InvalidRequest(f"Line {row.line}: {rules.event_time!r} is no time in ms: {text}")
        event_time_ms = int(text)
    return Outgoing(key, _value(row, rules), event_time_ms)


def _value(row: Row, rules: RowRules) -> bytes | None:
    """None is a tombstone."""
    if rules.tombstone is not None:
        field, value = rules.tombstone
        if field in row.texts and (row.texts[field] or "") == value:
            return None
    if rules.value is None:
        return row.content
    if rules.value not in row.texts:
        raise InvalidRequest(f"Line {row.line} has no {rules.value!r}, which is to be the value.")
    text = _sayable(row, rules.value)
    return None if text is None else text.encode()


def _sayable(row: Row, field: str) -> str | None:
    r"""A field's text. JSON can say halves of characters ("\ud800"), which are no text."""
    text = row.texts.get(field)
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        wrong = f"Line {row.line}: {field!r} is no text: {text!r}."
        raise InvalidRequest(wrong) from error
    return text


def _format(options: argparse.Namespace) -> str:
    if options.format:
        return str(options.format)
    ending = Path(options.file).suffix.lstrip(".").lower()
    if ending not in ("csv", "jsonl"):
        raise InvalidRequest(f"{options.file}: say --format csv or --format jsonl.")
    return ending


def _rules(options: argparse.Namespace) -> RowRules:
    tombstone = None
    if options.tombstone_when is not None:
        field, found, value = options.tombstone_when.partition("=")
        if not found:
            raise InvalidRequest("--tombstone-when: write FIELD=VALUE.")
        tombstone = field, value
    return RowRules(options.key, options.value, options.event_time, tombstone)


@dataclass
class _Import:
    """The messages of a file, and the count of what became of its rows."""

    rules: RowRules
    skips: bool
    rows: int = 0
    tombstones: int = 0
    skipped: int = 0

    def messages(self, rows: Rows) -> Iterator[Outgoing]:
        for row in rows:
            try:
                if isinstance(row, InvalidRequest):
                    raise row
                message = to_message(row, self.rules)
            except InvalidRequest as error:
                if not self.skips:
                    raise
                print(f"ledgerfold: {error} It is skipped.", file=sys.stderr)
                self.skipped += 1
                continue
            yield message
            self.rows += 1
            self.tombstones += message.value is None

    def counts(self, topic: str) -> str:
        skipped = f", {self.skipped:,} skipped" if self.skips else ""
        return (
            f"{counted(self.rows, 'row')} imported into {topic}, with "
            f"{counted(self.tombstones, 'tombstone')}{skipped}"
        )


def _import(options: argparse.Namespace) -> int:
    if options.file == KAFKA_LOG:
        return import_kafka_log(options)
    refuse_kafka_options(options)
    if options.key is None:
        raise InvalidRequest("Say which field is the key: --key FIELD.")
    if options.topic is None and options.file == "-":
        raise InvalidRequest("Standard input has no name: say --topic.")
    topic = options.topic or Path(options.file).stem
    format_ = _format(options)
    importing = _Import(_rules(options), options.on_error == "skip")
    with opened(options.file) as lines:
        client = client_of(options)
        try:
            producer = client.create_producer(topic, batching_enabled=True)
            rows = read_rows(lines, format_, importing.rules.fields)
            send_all(producer, importing.messages(rows))
        except InvalidRequest as error:
            before = counted(importing.rows, "row")
            raise InvalidRequest(f"{error} Imported before it: {before}.") from error
        finally:
            client.close()
    print(importing.counts(topic), file=sys.stderr)
    return FAILED if importing.skipped else DONE
