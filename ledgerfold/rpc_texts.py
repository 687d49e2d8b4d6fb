"""Limits on the text in requests, errors and responses.

* `take_request`, in a handler of public calls, limits the text and the lists of a request. Its cost
  does not grow with the size of a list that is too long.
* `remember_request` stores the request whose texts an error of this call may quote;
  `remember_names` stores a few of them, before the caller is authorized.
* `cut_arguments` cuts these texts when the error becomes a status.
* `cut_texts` cuts a response that is too large to be sent.

An error quotes at most REPEATED_MAX characters of an argument in one place.

    >>> from ledgerfold.v1.admin_pb2 import CreateTopicRequest
    >>> list(texts_of(CreateTopicRequest(topic="t", kafka={"values": {"a": "b"}})))
    [('topic', 't'), ('kafka.values', 'a'), ('kafka.values', 'b')]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.text import counted

# The limit on any text in a request; many have a lower one (broker/common/given_names.py).
TEXT_CHARACTERS_MAX = 16 * 1024
# Limit on values of a list, of any kind, or pairs of a map.
TEXTS_MAX = 10_000
# Limit on values of all lists of a request, and of lists in them: about 20 ms of work.
VALUES_MAX = 2 * TEXTS_MAX
REPEATED_MAX = 200
# Size of the pieces in which a message is searched, and of the part kept of a cut run.
_PIECE = 40
_KEPT = 100
# Characters searched at the beginning and at the end of a message.
_ENDS = 4000
# The name of fields that hold a JSON document.
_DOCUMENT = "json"
_WITH_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
_request: ContextVar[Message | tuple[str, ...]] = ContextVar("request", default=())


def remember_request(request: Message) -> None:
    """Stores the request of the call that this task serves."""
    _request.set(request)


def remember_names(*names: str) -> None:
    """Stores the only texts that an error may quote until the request itself is stored."""
    _request.set(names)


def take_request(request: Message) -> None:
    """Checks and stores a request of a public call.

    Raises InvalidRequest if it has too much text, or too long lists.
    """
    for field, text in texts_of(request):
        if len(text) > TEXT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"The field {field} of this {request.DESCRIPTOR.name} has {len(text)} characters; "
                f"at most {TEXT_CHARACTERS_MAX} are allowed. It begins with {text[:_KEPT]!r}."
            )
    remember_request(request)


def texts_of(message: Message) -> Iterator[tuple[str, str]]:
    """Yields each text with the path of its field. Raises InvalidRequest for a list that is too
    long, before it looks into it.
    """
    return _Walk(message).texts(message)


class _Walk:
    """One walk through a message, which counts the values of its lists."""

    def __init__(self, message: Message) -> None:
        self._kind, self._values = message.DESCRIPTOR.name, 0

    def texts(self, message: Message, path: str = "") -> Iterator[tuple[str, str]]:
        for field, value in message.ListFields():
            name = f"{path}{field.name}"
            if field.is_repeated:
                self._count(name, len(value))
            if field.type not in _WITH_TEXTS:
                continue
            for each in _values(field, value):
                if isinstance(each, str):
                    yield name, each
                elif isinstance(each, Message):
                    yield from self.texts(each, f"{name}.")

    def _count(self, field: str, values: int) -> None:
        """Raises InvalidRequest if a list, or all lists together, have too many values."""
        self._values += values
        if values > TEXTS_MAX:
            raise InvalidRequest(
                f"The field {field} of this {self._kind} has {counted(values, 'value')}; at most "
                f"{TEXTS_MAX} are allowed."
            )
        if self._values > VALUES_MAX:
            raise InvalidRequest(
                f"The lists of this {self._kind} have more than {VALUES_MAX} values in all."
            )


def cut_texts(message: Message) -> None:
    """Cuts texts above the limit of requests: records of an earlier version may hold megabytes.

    Documents stay whole: a part of one is not JSON.
    """
    for field, value in message.ListFields():
        if not field.is_repeated:
            if isinstance(value, Message):
                cut_texts(value)
            elif isinstance(value, str) and field.name != _DOCUMENT:
                setattr(message, field.name, value[:TEXT_CHARACTERS_MAX])
        elif (pairs := getattr(value, "items", None)) is not None:
            _cut_pairs(value, dict(pairs()))
        elif field.type == FieldDescriptor.TYPE_STRING:
            value[:] = [each[:TEXT_CHARACTERS_MAX] for each in value]
        elif field.message_type is not None:
            for each in value:
                cut_texts(each)


def _cut_pairs(field: MutableMapping[Any, Any], pairs: Mapping[Any, Any]) -> None:
    """Cuts a map of texts; stored records have no other maps."""
    if all(isinstance(each, str) for each in pairs.values()):
        field.clear()
        for name, text in pairs.items():
            field[name[:TEXT_CHARACTERS_MAX]] = text[:TEXT_CHARACTERS_MAX]


def _values(field: FieldDescriptor, value: Any) -> Iterable[object]:
    if not field.is_repeated:
        return (value,)
    pairs = getattr(value, "items", None)
    return value if pairs is None else (part for pair in pairs() for part in pair)


def cut_arguments(message: str) -> str:
    """Cuts texts of this call's request in the message to REPEATED_MAX characters."""
    request = _request.get()
    if len(message) <= REPEATED_MAX:
        return message
    if len(message) > 2 * _ENDS:
        # Longer messages are not sent anyway (storage/error_codec.py).
        message = f"{message[:_ENDS]} ... {message[-_ENDS:]}"
    for text in request if isinstance(request, tuple) else _long_texts(request):
        # Of a longer one, an error quotes only an end.
        for part in {text[:TEXT_CHARACTERS_MAX], text[-TEXT_CHARACTERS_MAX:]}:
            for form in {part, repr(part)[1:-1]}:
                message = _cut(message, form)
    return message


def _long_texts(request: Message) -> Iterator[str]:
    try:
        for _, text in texts_of(request):
            if len(text) > REPEATED_MAX:
                yield text
    except InvalidRequest:
        # The error is about this limit, and quotes nothing.
        return


def _cut(message: str, text: str) -> str:
    """Cuts each run of `message` that also occurs in `text`, if it may be too long.

    A run consists of whole pieces of the message, plus less than a piece at each end.
    """
    is_quoted = [
        len(message[at : at + _PIECE]) == _PIECE and message[at : at + _PIECE] in text
        for at in range(0, len(message), _PIECE)
    ]
    parts, at = list[str](), 0
    while at < len(is_quoted):
        begin = at
        while at < len(is_quoted) and is_quoted[at]:
            at += 1
        run = message[begin * _PIECE : at * _PIECE]
        if len(run) > _KEPT:
            parts.append(f"{run[:_KEPT]}... (of {len(text)} characters) ")
        else:
            parts.append(run)
        if at < len(is_quoted):
            parts.append(message[at * _PIECE : (at + 1) * _PIECE])
        at += 1
    return "".join(parts)
