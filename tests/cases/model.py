"""The parts of a parsed case: values that compare.

A case is a title and steps; a step is a verb with arguments, or messages to publish, and the
expectation of its answer. `Order` and the two forms of a value are the notation's expectations
(compare.py judges them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tests.cases.lexer import Place
from tests.cases.logs import LogText

Argument = str | int | bool
PROFILES = ("documented", "pulsar-4", "kafka-4.1")


@dataclass(frozen=True, slots=True)
class Message:
    """A message, published or expected; `id` ("E2.1") and other parts that are None are not
    compared.

    `key` None: no key. `value` None: a null value. Byte keys are in base64, as on the wire.
    """

    key: str | None
    value: bytes | None
    id: str | None = None
    is_byte_key: bool = False
    event_time_ms: int | None = None
    properties: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry, sent at once. `is_batch`: its messages have batch indexes."""

    messages: tuple[Message, ...]
    is_batch: bool


class Order(Enum):
    EXACT = "in this order"
    ANY = "in any order"
    AT_LEAST = "among others"


class Relation(Enum):
    SAME = "same as"
    OTHER = "other than"
    PART = "part of"


@dataclass(frozen=True, slots=True)
class Messages:
    """The answer is these messages."""

    messages: tuple[Message, ...]
    order: Order = Order.EXACT


@dataclass(frozen=True, slots=True)
class Count:
    """The answer is this number of messages, regardless of their contents."""

    count: int


@dataclass(frozen=True, slots=True)
class Value:
    """The answer compares like this: `sign` is one of = > >= < <= contains."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class Saved:
    """The answer is the one saved under `name`, another one, or a part of it."""

    name: str
    relation: Relation = Relation.SAME


@dataclass(frozen=True, slots=True)
class Refusal:
    """The step is refused, with this HTTP status or reason; "" is any."""

    code: str = ""


Expectation = Messages | Count | Value | Saved | Refusal | LogText


@dataclass(frozen=True, slots=True)
class Step:
    """`arguments` by the names in the verb's usage; `entries` are only for the verb "publish",
    `log` for "append".

    `profile` None: under every profile. `patient`: repeated until the answer is as expected.
    """

    place: Place
    text: str
    verb: str
    arguments: dict[str, Argument] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    expected: Expectation | None = None
    save_as: str | None = None
    profile: str | None = None
    patient: bool = False
    log: LogText | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """`options`: the options of `serve` that it needs; `own_broker`: its broker is not shared;
    `is_kafka`: it is about Kafka topics, and its broker cleans on request only.
    """

    number: str
    title: str
    place: Place
    steps: tuple[Step, ...] = ()
    options: tuple[str, ...] = ()
    own_broker: bool = False
    is_kafka: bool = False

    @property
    def profiles(self) -> tuple[str, ...]:
        """Returns the profiles for which the case has expectations; the default if it names
        none.
        """
        named = {step.profile for step in self.steps}
        return tuple(each for each in PROFILES if each in named) or PROFILES[:1]

    @property
    def expects(self) -> bool:
        """Returns whether any answer is judged; otherwise they are shown."""
        return any(step.expected for step in self.steps)

    @property
    def moves_time(self) -> bool:
        return any(step.verb == "advance" for step in self.steps)

    def under(self, profile: str) -> tuple[Step, ...]:
        """Returns the steps that are executed under that profile."""
        return tuple(step for step in self.steps if step.profile in (None, profile))
