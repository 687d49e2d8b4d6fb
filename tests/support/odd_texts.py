"""Every text that a request may have, and hostile values for it.

>>> from ledgerfold.v1 import admin_pb2
>>> [" ".join(path) for path in text_paths(admin_pb2.CreateTopicRequest.DESCRIPTOR)]
['topic', 'kafka values key', 'kafka values value', 'properties key', 'properties value']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ledgerfold.rpc_errors import DOMAIN, error_from_rpc
from ledgerfold.storage.errors import LedgerfoldError
from tests.support.property_tests import stride

Path = tuple[str, ...]
Fill = Callable[[Message], None]
_KEY, _VALUE = "key", "value"

ODD: Mapping[str, str] = {
    "empty": "",
    "blank": " ",
    "dots": "..",
    "a megabyte": "x" * 2**20,
    "a megabyte of all kinds": "".join(map(chr, range(0x20, 0x2F00))) * 90,
    "longer than an error repeats": "abcdefghij" * 60,
    "three hundred quotes": "'\"\\" * 100,
    "NUL": "a\0b",
    "ESC": "a\x1b[2Jb",
    "end of line": "a\nb\r\nc",
    "another end of line": "a\u2028b",
    "right to left": "a\u202eb\u05d0",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 60,
    "a path": "../../../../etc/passwd",
    "a scheme": "persistent://" + "y" * 500,
    "a format": "%s{}{0.__class__}$(id)",
}


def odd_texts(field: int) -> list[tuple[str, str]]:
    """Returns all of ODD; in the fast run every fifth, others for the next field."""
    every = stride(5)
    return [*ODD.items()][field % every :: every]


def text_paths(descriptor: Descriptor, of: Path = ()) -> Iterator[Path]:
    """The names of the fields that lead to each text; of a map its keys and its values."""
    for field in descriptor.fields:
        path = (*of, field.name)
        if field.type == FieldDescriptor.TYPE_STRING:
            yield path
        elif field.message_type is not None:
            yield from text_paths(field.message_type, path)


def request_with(kind: type[Message], path: Path, text: str, fill: Fill) -> Message:
    """`fill` gives each message on the path the other fields that it needs."""
    request = kind()
    fill(request)
    _put(request, path, text, fill)
    return request


def _put(message: Any, path: Path, text: str, fill: Fill) -> None:
    name, *rest = path
    field = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value.clear()
        value.update({text: "1"} if rest == [_KEY] else {"a": text})
    elif not rest and field.is_repeated:
        value[:] = [text]
    elif not rest:
        setattr(message, name, text)
    else:
        if field.is_repeated:
            del value[:]
            value = value.add()
        value.SetInParent()
        fill(value)
        _put(value, tuple(rest), text, fill)


def check_refusal(error: grpc.RpcError, text: str, where: str) -> LedgerfoldError:
    """Checks that the refusal is a typed error that repeats little of the input."""
    call: Any = error
    details = str(call.details())
    assert call.code() not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), (where, details)
    found = error_from_rpc(error)
    assert found.from_broker, f"{where}: {call.code()} without an ErrorInfo of {DOMAIN}: {details}"
    assert not set(details) & {"\0", "\x1b", "\r"}, where
    told = [details, *(value for value in vars(found).values() if isinstance(value, str))]
    for each in told:
        for form in {text, _as_written(text)}:
            assert not _repeats(each, form), f"{where} repeats {each}"
    return found


@lru_cache
def _as_written(text: str) -> str:
    return repr(text)[1:-1]


def _repeats(told: str, text: str, most: int = 200) -> bool:
    """Returns whether the output repeats more than that of the text in one place."""
    half = most // 2
    # Longer texts contain one of these in full.
    parts = (told[at : at + half] for at in range(0, len(told) - half, half))
    return any(part in text for part in parts) and any(
        told[at : at + most + 1] in text for at in range(len(told) - most)
    )
