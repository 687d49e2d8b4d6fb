"""Formats a history for people, one request per line.

>>> print(shown({"op": "append", "log": "t-0", "records": [{"key": "a", "value": None}], "pid": 7}))
append t-0 a=∅ pid=7
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

_PLAIN = ("op", "log", "records", "config")


def shown(request: Mapping[str, Any]) -> str:
    words = [request["op"]]
    if "log" in request:
        words.append(request["log"])
    words += [_record(record) for record in request.get("records", ())]
    words += [f"{name}={text}" for name, text in (request.get("config") or {}).items()]
    words += [f"{name}={value}" for name, value in request.items() if name not in _PLAIN]
    return " ".join(words)


def _record(record: Mapping[str, Any]) -> str:
    key = record.get("key")
    value = record.get("value", f"<{record.get('valueBytes')} bytes>")
    text = f"{'' if key is None else key}={'∅' if value is None else value}"
    if "offset" in record:
        text = f"{record['offset']}:{text}"
    return f"{text}@{record['timestamp']}" if "timestamp" in record else text


def as_requests(history: Iterable[Mapping[str, Any]]) -> str:
    """Formats a history as input of the kafka-oracle."""
    return "\n".join(json.dumps(request, ensure_ascii=False) for request in history)
