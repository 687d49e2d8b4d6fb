"""A request of a browser, and the parameters of its forms, each with a bound.

>>> from ledgerfold.broker.http.listener import parameters
>>> request = PageRequest(["topics"], parameters("q=ord&limit=7&at=a&at=b"))
>>> request.text("q"), request.number("limit", 50, most=20), request.texts("at")
('ord', 7, ['a', 'b'])
>>> request.number("missing", 50)
50
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from ledgerfold.broker.common.names import TopicName
from ledgerfold.broker.http.answers import Refusal, whole_number
from ledgerfold.storage.message_ids import FORM, parsed_id
from ledgerfold.v1.records_pb2 import MessageId

Parameters = Mapping[str, Sequence[str]]
_NUMBER_MAX = 2**53


@dataclass(frozen=True, slots=True)
class PageRequest:
    """`parts`: those of the path, decoded. `values`: the parameters of a query, or of a form."""

    parts: Sequence[str]
    values: Parameters = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        return self.values[name][0] if name in self.values else default

    def texts(self, name: str) -> list[str]:
        return list(self.values.get(name, ()))

    def number(self, name: str, default: int, *, most: int = _NUMBER_MAX, least: int = 0) -> int:
        """Returns a whole number within its bounds. Raises Refusal."""
        text = self.text(name)
        if not text:
            return default
        number = whole_number(name, text)
        if not least <= number <= most:
            raise Refusal(400, f"{name} must be {least} to {most}.")
        return number

    def unit(self, name: str, units: Mapping[str, int], default: str = "") -> int:
        """Returns the size of a unit, by default of the first. Raises Refusal."""
        unit = self.text(name, default or next(iter(units)))
        if unit not in units:
            raise Refusal(400, f"{unit[:100]!r} is not a unit: use {', '.join(units)}.")
        return units[unit]

    @property
    def topic(self) -> str:
        """The topic's full name, which is in the path."""
        domain, tenant, namespace, local = self.parts[1:5]
        return f"{domain}://{tenant}/{namespace}/{local}"


def message_id_in(text: str) -> MessageId:
    """Parses a message id. Raises Refusal."""
    parsed = parsed_id(text)
    if parsed is None:
        raise Refusal(400, f"This is not a message id: expected {FORM}.")
    ledger_id, entry_id, partition, index = parsed
    return MessageId(ledger_id=ledger_id, entry_id=entry_id, partition=partition, batch_index=index)


def topic_path(name: str) -> str:
    """Returns the path of a topic's page, given its full name.

    >>> topic_path("persistent://public/default/a b")
    '/topics/persistent/public/default/a%20b'
    """
    parsed = TopicName.parse(name)
    parts = (parsed.domain, parsed.tenant, parsed.namespace_local, parsed.local)
    return "/topics/" + "/".join(quote(each, safe="") for each in parts)
