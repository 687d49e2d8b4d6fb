"""A setting: its type, bounds and default, and the parsing of its text.

Follows Kafka's ConfigDef, with its messages for refused values:

    >>> ratio = Setting("min.cleanable.dirty.ratio", "DOUBLE", 0.5, "How dirty.", least=0, most=1)
    >>> ratio.parse(" 0.25 ")
    0.25
    >>> ratio.parse("7")
    Traceback (most recent call last):
        ...
    ledgerfold.errors.KafkaError: Invalid value 7.0 for configuration \
min.cleanable.dirty.ratio: Value must be no more than 1

Text is trimmed first, as in Kafka. Numbers are those that Java parses (`+7` and `1d` are; `1_000`,
`0x10` and hexadecimal doubles are not), and errors show them as Java does.

Source: org.apache.kafka.common.config.ConfigDef of Kafka 4.1 (parseType, Range, ValidList,
ValidString).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from math import isinf, isnan
from typing import Literal

from ledgerfold.storage.errors import KafkaError, KafkaErrorKind

Kind = Literal["BOOLEAN", "INT", "LONG", "DOUBLE", "STRING", "LIST"]
Value = bool | int | float | str | tuple[str, ...]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_LARGEST = {"INT": INT_MAX, "LONG": LONG_MAX}
_UNITS = ("ms", "minutes", "hours", "bytes")
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))([fFdD]?)"
)
# Java's trim() also removes control characters.
_BLANKS = "".join(map(chr, range(33)))


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. `doc`: a line of documentation; `unit`: of a number, by default the last word of
    its name, if that is a unit.
    """

    name: str
    kind: Kind
    # None: not set; another setting applies.
    default: Value | None
    doc: str
    unit: str = ""
    least: int | None = None
    most: int | None = None
    # A value outside of the bounds that is allowed.
    or_else: int | None = None
    one_of: tuple[str, ...] = ()
    # The broker's names for it, each with its factor to this unit; the first one that is set
    # counts.
    synonyms: tuple[tuple[str, int], ...] = ()
    # Whether a running broker accepts a new value. Topic settings always are dynamic.
    is_dynamic: bool = True

    def __post_init__(self) -> None:
        last = self.name.rpartition(".")[2]
        if not self.unit and last in _UNITS:
            object.__setattr__(self, "unit", last)

    def parse(self, text: str) -> Value:
        """Parses and validates a value."""
        value = self._value(text)
        self._check(value)
        return value

    def _value(self, text: str) -> Value:
        trimmed = text.strip(_BLANKS)
        match self.kind:
            case "BOOLEAN":
                if trimmed.lower() not in ("true", "false"):
                    raise self.refusal(text, "Expected value to be either true or false")
                return trimmed.lower() == "true"
            case "INT" | "LONG":
                number = int(trimmed) if _INTEGER.fullmatch(trimmed) else None
                largest = _LARGEST[self.kind]
                if number is None or not -largest - 1 <= number <= largest:
                    raise self.refusal(text, f"Not a number of type {self.kind}")
                return number
            case "DOUBLE":
                match = _DOUBLE.fullmatch(trimmed)
                if not match:
                    raise self.refusal(text, f"Not a number of type {self.kind}")
                return float(match[1])
            case "STRING":
                return trimmed
            case "LIST":
                return tuple(re.split(r"\s*,\s*", trimmed)) if trimmed else ()

    def _check(self, value: Value) -> None:
        if self.one_of:
            for word in value if isinstance(value, tuple) else (str(value),):
                if word not in self.one_of:
                    known = ", ".join(self.one_of)
                    raise self.refusal(word, f"String must be one of: {known}")
        elif isinstance(value, int | float):
            self._check_bounds(value)

    def _check_bounds(self, number: float) -> None:
        if self.or_else is not None:
            if number != self.or_else and not self._is_within(number):
                why = f"between {self.least} and {self.most} or equal to {self.or_else}"
                raise self.refusal(text_of(number), f"Value must be {why}")
        elif self.least is not None and number < self.least:
            raise self.refusal(text_of(number), f"Value must be at least {self.least}")
        elif self.most is not None and number > self.most:
            raise self.refusal(text_of(number), f"Value must be no more than {self.most}")

    def _is_within(self, number: float) -> bool:
        least = self.least if self.least is not None else -LONG_MAX
        most = self.most if self.most is not None else LONG_MAX
        return least <= number <= most

    def refusal(self, text: str, why: str) -> KafkaError:
        return invalid_config(f"Invalid value {text} for configuration {self.name}: {why}")


def invalid_config(message: str, kafka_class: str = "ConfigException") -> KafkaError:
    """Returns an INVALID_CONFIG error. `kafka_class`: the exception of Kafka's own code."""
    error = KafkaError(KafkaErrorKind.INVALID_CONFIG, message)
    error.kafka_class = kafka_class
    return error


def text_of(value: Value) -> str:
    """Formats a value as Kafka shows it.

    >>> text_of(True), text_of(("compact", "delete")), text_of(1e10), text_of(0.5)
    ('true', 'compact,delete', '1.0E10', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(number: float) -> str:
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    first, *rest = (str(digit) for digit in digits)
    scale = int(exponent) + len(rest)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{scale}"
