"""The verbs of the notation: their arguments, and the functions that execute them.

A verb is declared at its function (steps/), by a decorator with its usage:

    reader NAME [RC] [from=POSITION] [queue=N]

Words in capitals are placeholders, in order; parts in brackets are optional: a flag, or `name=`
with the kind of its value:

    N a whole number      TIME 10s, 50ms, 2h (ms are passed on)      a|b one of these
    POSITION earliest, latest, E2 or E2.1                            anything else: any word

The step finds them in `arguments`, the placeholders under their lower-case names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.cases.lexer import Token
from tests.cases.model import Argument, Step

if TYPE_CHECKING:
    from tests.cases.runner import Run

Action = Callable[["Run", Step], Any]
_TIME = re.compile(r"(\d+)(ms|s|m|h|d)")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Placeholders for one of a few words.
_CHOICES = {"SCOPE": "topic|namespace", "CHOICE": "retain|drop", "BOOLEAN": "true|false"}
_PATTERNS = {
    "POSITION": (r"earliest|latest|E\d+(\.\d+)?", "earliest, latest, E2, E2.1"),
    "ID": (r"E\d+(\.\d+)?", "E2, E2.1"),
    "N": (r"-?\d+", "a whole number"),
    "TIME": (_TIME.pattern, "10s, 50ms, 2h"),
}


class Verb(NamedTuple):
    """`words` in order, the first `required` of which are mandatory; `options` name -> kind, of
    which those in `needed` are mandatory. An option in capitals stands for any. `takes_log`: a
    log's text follows it (logs.py); `answers_log`: its expectation is one.
    """

    name: str
    usage: str
    words: tuple[str, ...]
    required: int
    flags: frozenset[str]
    options: dict[str, str]
    needed: frozenset[str]
    action: Action
    takes_log: bool = False
    answers_log: bool = False


VERBS: dict[str, Verb] = {}


def verb(
    usage: str, *, takes_log: bool = False, answers_log: bool = False
) -> Callable[[Action], Action]:
    """Declares a verb by its usage."""

    def declare(action: Action) -> Action:
        name, *parts = usage.split()
        words = [part.strip("[]") for part in parts if part.strip("[]").isalpha()]
        words = [word for word in words if word.isupper() and word != "RC"]
        required = sum(not part.startswith("[") and "=" not in part for part in parts)
        needed = frozenset(part.partition("=")[0] for part in parts if re.match(r"[^\[]+=", part))
        flags, options = set(), {}
        for part in parts:
            option, equals, kind = part.strip("[]").partition("=")
            if equals:
                options[option] = kind
            # RC is a word of the catalogue, not a placeholder.
            elif part.startswith("[") and (option == "RC" or not option.isupper()):
                flags.add(option)
        VERBS[name] = Verb(
            name,
            usage,
            tuple(words),
            required,
            frozenset(flags),
            options,
            needed,
            action,
            takes_log,
            answers_log,
        )
        return action

    return declare


def checked(kind: str, token: Token) -> Argument:
    """Returns the token as an argument of that kind. Raises NotationError."""
    text = token.text
    choices = _CHOICES.get(kind, kind).split("|")
    if len(choices) > 1 and text not in choices:
        raise token.place.error(f"{text!r} is none of {', '.join(choices)}")
    pattern, meaning = _PATTERNS.get(kind, (".*", ""))
    match = re.fullmatch(pattern, text, re.DOTALL)
    if match is None:
        raise token.place.error(f"{text!r} is no {kind}: {meaning}")
    if kind == "TIME":
        return int(match.group(1)) * _MS[match.group(2)]
    return int(text) if kind == "N" else text
