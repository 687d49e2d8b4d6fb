"""`what-if` over a file, without a topic and without a broker.

Columns, or fields of JSON lines: `key`, `value`, and where they are there `event_time_ms` and
`publish_time_ms`. A row without a value is a tombstone; in JSON a null key, or none, is no key. The
rows are written as a log into a temporary folder, and a compactor of our own looks at it.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import refuse_url
from ledgerfold.broker.cli.import_rows import Row, Rows, opened, read_rows
from ledgerfold.broker.cli.what_if_options import Question
from ledgerfold.storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.broker.whatif.file_log import FileMessage
    from ledgerfold.v1.what_if_pb2 import TopicWhatIf

_TIMES = ("event_time_ms", "publish_time_ms")
_INT64_MAX = 2**63 - 1


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--csv", metavar="FILE", help="look at a file; columns key, value, event_time_ms, ..."
    )
    parser.add_argument("--jsonl", metavar="FILE", help="the same, a JSON object a line")
    parser.add_argument(
        "--spark-master",
        default="local[2]",
        metavar="URL",
        help="where a file is looked at; default local[2]",
    )
    keys = "of a file: messages without a key survive"
    parser.add_argument("--retain-null-key", action="store_true", help=keys)


def file_of(options: argparse.Namespace) -> tuple[str, str] | None:
    """Its name and format; None: a topic is looked at. Raises InvalidRequest."""
    given = [(name, kind) for kind in ("csv", "jsonl") if (name := getattr(options, kind))]
    if len(given) + (options.topic is not None) != 1:
        raise InvalidRequest("Say what to look at: a topic, or --csv FILE, or --jsonl FILE.")
    if given:
        refuse_url(options, f"--{given[0][1]}")
        if options.config:
            raise InvalidRequest(
                f"--config is of a Kafka topic's cleaner, and --{given[0][1]} is no topic: import "
                "a log with `import kafka-log`."
            )
    elif options.retain_null_key:
        raise InvalidRequest("A topic has its own policy; --retain-null-key is for a file.")
    return given[0] if given else None


def ask_about_file(
    name: str, format_: str, question: Question, *, spark_master: str, retain_null_key: bool
) -> TopicWhatIf:
    """Raises InvalidRequest, naming the line; OSError; and what a compactor raises."""
    from ledgerfold.broker.whatif.file_log import write_log
    from ledgerfold.broker.whatif.own_worker import ask_own_worker
    from ledgerfold.strategies.catalogue import DEFAULT
    from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    with tempfile.TemporaryDirectory(prefix="ledgerfold-what-if-") as folder:
        data_dir = Path(folder)
        with opened(name) as lines:
            rows = read_rows(lines, format_, ("key", "value") if format_ == "csv" else ())
            plan = write_log(data_dir, _messages(rows), int(time.time() * 1000))
        plan.topic, plan.retain_null_key = name, retain_null_key
        request = AnalyzeRequest(
            plan=plan,
            strategies=question.strategies or [CompactionStrategy(name=DEFAULT)],
            differences_max=question.differences_max,
            replays=question.replays,
        )
        if question.replays:
            request.history.CopyFrom(plan)
        found = ask_own_worker(data_dir, request, spark_master)
    found.topic = name
    return found


def _messages(rows: Rows) -> Iterable[FileMessage]:
    for row in rows:
        if isinstance(row, InvalidRequest):
            raise row
        yield to_message(row)


def to_message(row: Row) -> FileMessage:
    """Raises InvalidRequest, naming the line."""
    from ledgerfold.broker.whatif.file_log import FileMessage

    key, value = row.texts.get("key"), row.texts.get("value")
    try:
        return FileMessage(
            None if key is None else key.encode(),
            (value or "").encode(),
            *(_time_ms(row, name) for name in _TIMES),
        )
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"Line {row.line}: {error.object!r} is no text.") from error


def _time_ms(row: Row, name: str) -> int:
    text = row.texts.get(name) or "0"
    if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > _INT64_MAX:
        raise InvalidRequest(f"Line {row.line}: {name!r} is no time in ms: {text}")
    return int(text)
