"""`what-if` over a file, without a topic or a broker.

Columns, or fields of JSON lines: `key`, `value`, and optionally `event_time_ms` and
`publish_time_ms`. A row without a value is a tombstone; in JSON a null or missing key is no key.
With `--key` the rows become messages as in `import` with the same options: the row is the value
unless `--value` names a field, and there are no event times unless `--event-time` names one.

The rows are written as a log into a temporary folder, which a separate compactor analyses.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.cli.connecting import refuse_url
from ledgerfold.broker.cli.data.import_rows import Row, Rows, opened, read_rows
from ledgerfold.broker.cli.data.row_rules import (
    ROW_RULES,
    RowRules,
    message_of_row,
    rules_of,
    time_of_row,
)
from ledgerfold.broker.cli.verbs import argument, flag, together
from ledgerfold.broker.cli.what_if.options import Question
from ledgerfold.storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.broker.whatif.file_log import FileMessage
    from ledgerfold.v1.what_if_pb2 import TopicWhatIf

_EVENT_TIME, _PUBLISH_TIME = "event_time_ms", "publish_time_ms"


class File(NamedTuple):
    """A file to analyse.

    `rules` None: its fields have the names above. `event_time`: the field that the option names.
    """

    name: str
    format: str
    rules: RowRules | None = None
    event_time: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that a CSV file must have."""
        if self.rules is not None:
            return self.rules.fields
        return ["key", "value"] + ([self.event_time] if self.event_time else [])


FILE_OPTIONS = together(
    argument("--csv FILE", "analyse a CSV file; columns key, value, event_time_ms, ..."),
    argument("--jsonl FILE", "analyse a file with one JSON object per line"),
    ROW_RULES,
    argument(
        "--spark-master URL",
        "Spark master for the analysis of a file; default local[2]",
        default="local[2]",
    ),
    flag("--retain-null-key", "for a file: retain messages without a key"),
)


def file_of(options: argparse.Namespace) -> File | None:
    """Returns the file to analyse; None: a topic. Raises InvalidRequest."""
    files = [(name, kind) for kind in ("csv", "jsonl") if (name := getattr(options, kind))]
    if len(files) + (options.topic is not None) != 1:
        raise InvalidRequest("Give exactly one of: a topic, --csv FILE, --jsonl FILE.")
    if files:
        refuse_url(options, f"--{files[0][1]}")
        if options.config:
            raise InvalidRequest(
                f"--config applies to a Kafka topic, not to --{files[0][1]}: import a log with "
                "`import kafka-log`."
            )
        return _with_rules(*files[0], options)
    if options.retain_null_key:
        raise InvalidRequest("--retain-null-key applies to a file: a topic has its own policy.")
    if options.key or options.value or options.event_time or options.tombstone_when:
        raise InvalidRequest(
            "--key, --value, --event-time and --tombstone-when apply to the rows of a file, not to "
            "a topic."
        )
    return None


def _with_rules(name: str, format_: str, options: argparse.Namespace) -> File:
    if options.key is not None:
        return File(name, format_, rules_of(options), options.event_time)
    if options.value is not None or options.tombstone_when is not None:
        raise InvalidRequest("--value and --tombstone-when require --key, as in `import`.")
    return File(name, format_, None, options.event_time)


def ask_about_file(
    file: File, question: Question, *, spark_master: str, retain_null_key: bool
) -> TopicWhatIf:
    """Analyses a file. Raises InvalidRequest, naming the line; OSError; and errors of the
    compactor.
    """
    from ledgerfold.broker.whatif.file_log import ask_own_worker, write_log
    from ledgerfold.strategies.catalogue import DEFAULT
    from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    with tempfile.TemporaryDirectory(prefix="ledgerfold-what-if-") as folder:
        data_dir = Path(folder)
        with opened(file.name) as lines:
            rows = read_rows(lines, file.format, file.columns)
            plan = write_log(data_dir, _messages(rows, file), int(time.time() * 1000))
        plan.topic, plan.retain_null_key = file.name, retain_null_key
        request = AnalyzeRequest(
            plan=plan,
            strategies=question.strategies or [CompactionStrategy(name=DEFAULT)],
            differences_max=question.differences_max,
            replays=question.replays,
        )
        if question.replays:
            request.history.CopyFrom(plan)
        forecast = ask_own_worker(data_dir, request, spark_master)
    forecast.topic = file.name
    return forecast


def _messages(rows: Rows, file: File) -> Iterable[FileMessage]:
    for row in rows:
        if isinstance(row, InvalidRequest):
            raise row
        yield to_message(row, file)


def to_message(row: Row, file: File) -> FileMessage:
    """Converts a row to a message. Raises InvalidRequest, naming the line."""
    from ledgerfold.broker.whatif.file_log import FileMessage

    if file.rules is not None:
        imported = message_of_row(row, file.rules)
        key = imported.key or ""
        return FileMessage(
            key if isinstance(key, bytes) else key.encode(),
            imported.value or b"",
            imported.event_time_ms or 0,
            time_of_row(row, _PUBLISH_TIME, "0"),
        )
    text, value = row.texts.get("key"), row.texts.get("value")
    try:
        return FileMessage(
            None if text is None else text.encode(),
            (value or "").encode(),
            time_of_row(row, file.event_time or _EVENT_TIME, "" if file.event_time else "0"),
            time_of_row(row, _PUBLISH_TIME, "0"),
        )
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"Line {row.line}: {error.object!r} is not valid Unicode.") from error
