"""`import`: a CSV or JSON-lines file as a keyed topic.

A row becomes a message: the text of one field is the key, the row the value, or the text of another
field. (What those texts are says import_rows.py.) What is wrong with a row is said with its line
number; the rows before it are imported then, and with `--on-error skip` those behind it, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ledgerfold.broker.cli.connecting import client_of
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.import_kafka import (
    KAFKA_LOG,
    add_kafka_log,
    import_kafka_log,
    refuse_kafka_options,
)
from ledgerfold.broker.cli.import_rows import Rows, opened, read_rows
from ledgerfold.broker.cli.producing import Outgoing, send_all
from ledgerfold.broker.cli.row_rules import RowRules, add_row_rules, message_of_row, rules_of
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.words import counted

Commands = argparse._SubParsersAction


def add_import(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "import", help="publish a CSV or JSON-lines file, keyed by a field"
    )
    parser.set_defaults(run=_import)
    add = parser.add_argument
    add("file", metavar="FILE.csv|FILE.jsonl|-|kafka-log", help="-: standard input")
    add_row_rules(parser)
    add("--topic", help="default: the file's name")
    add("--format", choices=("csv", "jsonl"), help="default: by the file's ending")
    add(
        "--on-error",
        choices=("skip", "stop"),
        default="stop",
        help="at a row that cannot be imported; skip ends with 1 if it skipped any; default stop",
    )
    add_kafka_log(parser)


def _format(options: argparse.Namespace) -> str:
    if options.format:
        return str(options.format)
    ending = Path(options.file).suffix.lstrip(".").lower()
    if ending not in ("csv", "jsonl"):
        raise InvalidRequest(f"{options.file}: say --format csv or --format jsonl.")
    return ending


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
                message = message_of_row(row, self.rules)
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
    importing = _Import(rules_of(options), options.on_error == "skip")
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
