"""`explain`: the versions of a key, where they are stored, why, and what happens to them next.

    ledgerfold explain prices --key p3
    ledgerfold explain prices --at 12:40:-1:3

A table on a terminal, JSON lines in a pipe; notes on the answer are printed to standard error.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import sys
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import TOPIC, admin_of
from ledgerfold.broker.cli.output import ROWS, print_rows, wants_table
from ledgerfold.broker.cli.start_positions import ID, parse_message_id, topic_of
from ledgerfold.broker.cli.verbs import Verbs, argument, flag, one_of
from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import FORM

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId
    from ledgerfold.v1.explain_pb2 import ExplainedVersion, RunSpan

COMMANDS = Verbs()


@COMMANDS.verb("explain", "explain what compaction does to the messages of a key", TOPIC)
@one_of(
    argument("-k --key", "the key, as `read` shows it"),
    argument("--key-base64 BASE64", "a key that is not text, in base64"),
    flag("--null-key", "the messages without a key"),
    argument("--at", "one message, by its id", metavar=ID),
    argument("--offset N", "one message of a Kafka topic, by its offset", type=int),
    required=True,
)
@ROWS
def _explain(options: argparse.Namespace) -> None:
    from ledgerfold.broker.client import MessageId

    topic, message_id = options.topic, None
    if options.offset is not None and options.offset < 0:
        raise InvalidRequest("An offset must be 0 or more.")
    if options.offset is not None:
        message_id = MessageId(-1, 0, options.offset, -1)
    if options.at is not None:
        message_id = _message_id(options.at)
        topic = topic_of(topic, message_id)
    with admin_of(options) as admin:
        explained = admin.explain(topic, key=_key(options), message_id=message_id)
    rows = _table if wants_table(options) else _json
    print_rows(options, map(rows, explained.versions), wrapped=("what", "next"))
    for note in explained.notes:
        print(note, file=sys.stderr)


def _key(options: argparse.Namespace) -> bytes | str | None:
    if options.key_base64 is None:
        key: str | None = options.key
        return key
    try:
        return base64.b64decode(options.key_base64, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(f"--key-base64 {options.key_base64!r}: {error}.") from None


def _message_id(text: str) -> MessageId:
    message_id = parse_message_id(text)
    if message_id is None or message_id.ledger_id() < 0 or text == "latest":
        raise InvalidRequest(
            f"{text!r} is not a message id: expected {FORM}; on a topic without partitions, "
            "LEDGER:ENTRY for a single message, LEDGER:ENTRY:-1:INDEX for one in a batch."
        )
    return message_id


def _table(version: ExplainedVersion) -> dict[str, Any]:
    row = _json(version)
    event_ms = version.event_time_ms
    return {
        "id": row["id"],
        "published": iso_time(version.publish_time_ms) if version.publish_time_ms else "",
        "event_time": iso_time(event_ms) if event_ms > 0 else "",
        "bytes": version.value_bytes,
        "where": row["where"],
        "what": f"{version.what}{_strategy_words(version)}",
        "next": version.next,
    }


def _strategy_words(version: ExplainedVersion) -> str:
    """Returns the explanation of the strategy's class, if it has one."""
    from ledgerfold.broker.explain.text import record_text

    if not version.words:
        return ""
    return f'; against {record_text(version.words_left)} its class says: "{version.words}"'


def _json(version: ExplainedVersion) -> dict[str, Any]:
    from ledgerfold.broker.explain.text import record_text
    from ledgerfold.v1 import explain_pb2 as pb

    return {
        "id": record_text(version.id),
        "publish_time": version.publish_time_ms,
        "event_time": version.event_time_ms,
        "value_bytes": version.value_bytes,
        "key_is_base64": version.key_is_base64,
        "where": _word(pb.VersionPlace.Name(version.place), "VERSION_PLACE_"),
        "state": _word(pb.VersionState.Name(version.state), "VERSION_STATE_"),
        "hidden": version.is_hidden,
        "rule": _word(pb.CompactionRule.Name(version.rule), "COMPACTION_RULE_"),
        "by": record_text(version.by) if version.HasField("by") else None,
        "kept_by_run": _run(version.kept_by),
        "dropped_by_run": _run(version.dropped_by),
        "next_rule": _word(pb.CompactionRule.Name(version.next_rule), "COMPACTION_RULE_"),
        "next_by": record_text(version.next_by) if version.HasField("next_by") else None,
        "strategy": version.strategy or None,
        "missed": version.is_missed,
        "what": version.what,
        "next": version.next,
        "words": version.words or None,
        "words_against": record_text(version.words_left) if version.words else None,
    }


def _word(name: str, prefix: str) -> str | None:
    word = name.removeprefix(prefix).lower()
    return None if word == "unspecified" else word


def _run(span: RunSpan) -> int | str | None:
    """Returns a run number, "first-last" for a range, or None."""
    if not span.last:
        return None
    return span.last if span.first == span.last else f"{span.first}-{span.last}"
