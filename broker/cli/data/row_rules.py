"""The conversion of a file's rows to messages: the fields for key, value and event time.

The fields `key` and `value` of a row are decoded if `key_encoding` or `encoding` says that they are
in base64, as `export` writes bytes that are not UTF-8. On a Kafka topic, where an empty value is no
tombstone, an empty `value` is a null value if the row's `tombstone` says so, because a CSV file has
no nulls; and the `key` of a record, a row with an `offset`, may be empty.

>>> row = Row(2, {"id": "7", "price": "10", "at": "1000"}, b'{"id":"7","price":"10","at":"1000"}')
>>> message_of_row(row, RowRules("id", "price", "at"))
Outgoing(key='7', value=b'10', event_time_ms=1000, properties=None)
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import re
from typing import NamedTuple

from ledgerfold.broker.cli.data.import_rows import Row
from ledgerfold.broker.cli.data.producing import Outgoing
from ledgerfold.broker.cli.units import INT64_MAX
from ledgerfold.broker.cli.verbs import argument, together
from ledgerfold.storage.errors import InvalidRequest

# The fields that may be in base64, and those that say so.
_ENCODINGS = {"key": "key_encoding", "value": "encoding"}


class RowRules(NamedTuple):
    """The options of the conversion. `value` None: the whole row is the value."""

    key: str
    value: str | None = None
    event_time: str | None = None
    # FIELD and VALUE of --tombstone-when.
    tombstone: tuple[str, str] | None = None
    properties: str | None = None
    # Whether the messages become records of a Kafka topic.
    is_kafka: bool = False

    @property
    def fields(self) -> list[str]:
        """The fields that the options name."""
        tombstone = self.tombstone[0] if self.tombstone else None
        named = (self.key, self.value, self.event_time, tombstone, self.properties)
        return list(dict.fromkeys(name for name in named if name is not None))


ROW_RULES = together(
    argument("--key FIELD", "for a file: the field that is the key"),
    argument(
        "--value FIELD",
        "the field that is the value, null is a tombstone; default: the row as JSON, a JSON "
        "line unchanged",
    ),
    argument("--event-time FIELD", "the field that is the event time, in ms since the epoch"),
    argument("--tombstone-when FIELD=VALUE", "treat matching rows as tombstones"),
)


def rules_of(options: argparse.Namespace) -> RowRules:
    tombstone = None
    if options.tombstone_when is not None:
        field, equals_sign, value = options.tombstone_when.partition("=")
        if not equals_sign:
            raise InvalidRequest("--tombstone-when: expected FIELD=VALUE.")
        tombstone = field, value
    return RowRules(options.key, options.value, options.event_time, tombstone)


def message_of_row(row: Row, rules: RowRules) -> Outgoing:
    """Converts a row to a message or a tombstone. Raises InvalidRequest, naming the line."""
    key = _key(row, rules.key)
    if not key and (key is None or not _may_be_empty(row, rules)):
        raise InvalidRequest(f"Line {row.line} has no {rules.key!r} for the key.")
    event_time_ms = None if rules.event_time is None else time_of_row(row, rules.event_time)
    properties = None if rules.properties is None else _properties(row, rules.properties)
    return Outgoing(key, _value(row, rules), event_time_ms, properties)


def _key(row: Row, field: str) -> str | bytes | None:
    text = _encodable_text(row, field)
    return _from_base64(row, field, text) if text and _is_base64(row, field) else text


def _may_be_empty(row: Row, rules: RowRules) -> bool:
    """Returns whether the row is a record whose empty key is a key."""
    return rules.is_kafka and rules.key == "key" and bool(row.texts.get("offset"))


def _is_base64(row: Row, field: str) -> bool:
    encoding = _ENCODINGS.get(field)
    return encoding is not None and row.texts.get(encoding) == "base64"


def _from_base64(row: Row, field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        wrong = (
            f"Line {row.line}: {field!r} is not in base64, as {_ENCODINGS[field]!r} says: {text}"
        )
        raise InvalidRequest(wrong) from error


def time_of_row(row: Row, field: str, default: str = "") -> int:
    """Returns a field's time in ms. Raises InvalidRequest, also for no time without `default`."""
    text = row.texts.get(field) or default
    if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > INT64_MAX:
        raise InvalidRequest(f"Line {row.line}: {field!r} is not a time in ms: {text}")
    return int(text)


def _value(row: Row, rules: RowRules) -> bytes | None:
    """Returns the value; None for a tombstone."""
    if rules.tombstone is not None:
        field, value = rules.tombstone
        if field in row.texts and (row.texts[field] or "") == value:
            return None
    if rules.value is None:
        return row.content
    if rules.value not in row.texts:
        raise InvalidRequest(f"Line {row.line} has no {rules.value!r} for the value.")
    text = _encodable_text(row, rules.value)
    if text is None or (not text and _is_null(row, rules)):
        return None
    return _from_base64(row, rules.value, text) if _is_base64(row, rules.value) else text.encode()


def _is_null(row: Row, rules: RowRules) -> bool:
    """Returns whether a Kafka topic's record gets no value for the row's empty `value`."""
    return rules.is_kafka and rules.value == "value" and row.texts.get("tombstone") == "true"


def _properties(row: Row, field: str) -> dict[str, str] | None:
    """Returns the texts of a field that is a JSON object; None for an empty field."""
    text = _encodable_text(row, field)
    if not text:
        return None
    try:
        properties = json.loads(text)
        if not isinstance(properties, dict):
            raise TypeError("not an object")
        # Raises TypeError for another value, and UnicodeEncodeError for half a character.
        "".join((*properties, *properties.values())).encode()
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"Line {row.line}: {field!r} is not a JSON object of strings: {text:.100}"
        raise InvalidRequest(wrong) from error
    return properties or None


def _encodable_text(row: Row, field: str) -> str | None:
    r"""Returns a field's text. Raises InvalidRequest for lone surrogates, which JSON allows
    ("\ud800").
    """
    text = row.texts.get(field)
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        wrong = f"Line {row.line}: {field!r} is not valid Unicode: {text!r}."
        raise InvalidRequest(wrong) from error
    return text
