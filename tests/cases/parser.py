"""Files of cases.

    # A comment.
    TOM-08 A value after its tombstone
        k=1 k=∅ k=2 | compact | removed -> 1
        RC-read -> E2 k=2
        documented: compact | CL.ledgerId -> same as before
        broker: --ledger-entries 2

A case begins in the first column with its number and title; its lines are indented, and a line that
is indented more continues the previous one. Or steps are in the first column themselves, optionally
after a number and a colon: their text is the title. A line holds steps, separated by `|`; they may
be preceded by the profile to which they belong, or by `broker:` with options of `serve`. A step is
messages to publish, or a verb (verbs.py), optionally `as NAME`, and optionally `->` with the
expectation.

    >>> case, = parse("BAS-09 One message\\n  a=1 | compact | RC-read -> E0 a=1\\n")
    >>> [step.verb for step in case.steps], case.steps[2].expected.messages[0].id
    (['publish', 'compact', 'RC-read'], 'E0')
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from tests.cases.lexer import WORD, Cursor, Place, Token, as_written, tokens
from tests.cases.log_lines import parse_log
from tests.cases.logs import LogText
from tests.cases.messages import begins_messages, parse_entries, parse_messages
from tests.cases.model import (
    PROFILES,
    Argument,
    Case,
    Count,
    Expectation,
    Messages,
    Order,
    Refusal,
    Relation,
    Saved,
    Step,
    Value,
)
from tests.cases.steps import KAFKA_VERBS, LOOK, OWN_BROKER_VERBS, PATHS, VERBS
from tests.cases.verbs import Verb, checked

_HEADER = re.compile(r"([A-Z][A-Z0-9]*-\d+[a-z]?|T\d+[a-z]?)(:?)\s+(\S.*)")
_LABEL = re.compile(r"([a-z][a-z0-9.-]*):(?=\s)")
# The whole line is a log's text, including bars: one that is built, or one that must remain.
LOG_LINES = {"log": "append", "left": "left"}
_SIGNS = (">=", "<=", ">", "<")
_ANY_OPTION = "SETTING"
_ORDERS = {"any-order": Order.ANY, "at-least": Order.AT_LEAST}


def parse(text: str, source: str = "-") -> list[Case]:
    """Parses the cases of a file. Raises NotationError."""
    cases: list[Case] = []
    for (place, header), body in _blocks(text, source):
        match = _HEADER.fullmatch(header)
        number, title = (match[1], match[3]) if match else (f"LINE-{place.line}", header)
        if match is None and re.match(r"[A-Za-z]+-\d+[a-z]? ", header):
            raise place.error("a case's number is in capitals: BAS-01 The last value")
        if match is None or match[2]:
            body = [[(place._replace(column=len(header) - len(title) + 1), title)], *body]
        if any(number == case.number for case in cases):
            raise place.error(f"{number} is there already")
        cases.append(_case(Case(number, title, place), body))
    return cases


Line = tuple[Place, str]


def _blocks(text: str, source: str) -> Iterator[tuple[Line, list[list[Line]]]]:
    """Yields each case's header and its lines, with continuations joined."""
    header: Line | None = None
    body: list[list[Line]] = []
    margin = 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        at = Place(source, number, indent + 1), stripped
        if indent == 0:
            if header is not None:
                yield header, body
            header, body, margin = at, [], 0
        elif header is None:
            raise at[0].error("a line before the first case")
        elif body and indent > margin:
            body[-1].append(at)
        else:
            margin = margin or indent
            body.append([at])
    if header is not None:
        yield header, body


def _case(case: Case, body: list[list[Line]]) -> Case:
    steps: list[Step] = []
    options: list[str] = []
    for lines in body:
        place, text = lines[0]
        label = _LABEL.match(text)
        name = label.group(1) if label else None
        if name == "broker":
            options += shlex.split(" ".join(line for _, line in lines)[len("broker:") :])
            continue
        is_log = name in LOG_LINES
        if name is not None and name not in PROFILES and not is_log:
            raise place.error(f"{name}: is no profile; there are {', '.join(PROFILES)}")
        skipped = label.end() if label else 0
        found = tokens(text[skipped:], place.line, place.column + skipped, place.source)
        for more, rest in lines[1:]:
            found += tokens(rest, more.line, more.column, more.source)
        end = lines[-1][0]._replace(column=lines[-1][0].column + len(lines[-1][1]))
        if is_log:
            steps.append(_log_line(place, str(name), found, end))
        else:
            steps += [_step(part, stop, name) for part, stop in _split(found, end)]
    if not steps:
        raise case.place.error("a case without steps: they stand below it, indented")
    _check_saved(steps)
    own_broker = any(step.verb in OWN_BROKER_VERBS for step in steps)
    is_kafka = any(step.verb in KAFKA_VERBS for step in steps)
    return Case(
        case.number, case.title, case.place, tuple(steps), tuple(options), own_broker, is_kafka
    )


def _log_line(place: Place, name: str, found: list[Token], end: Place) -> Step:
    cursor = Cursor(found, end)
    log, text = parse_log(cursor), f"{name}: {as_written(found)}"
    if name == "left":
        return Step(place, text, LOG_LINES[name], expected=log)
    expected = _expectation(cursor) if cursor.skip("->") else None
    if not cursor.is_done:
        raise cursor.place.error(f"{cursor.take().text!r} is too much here")
    return Step(place, text, LOG_LINES[name], expected=expected, log=log)


def _check_saved(steps: Iterable[Step]) -> None:
    saved: set[str | None] = set()
    for step in steps:
        if isinstance(step.expected, Saved) and step.expected.name not in saved:
            raise step.place.error(f"nothing was saved as {step.expected.name} before")
        saved.add(step.save_as)


def _split(found: list[Token], end: Place) -> Iterator[tuple[list[Token], Place]]:
    part: list[Token] = []
    for token in found:
        if token.kind != "|":
            part.append(token)
            continue
        # A line may begin with the bar that ends the previous one.
        if part:
            yield part, token.place
        part = []
    if part:
        yield part, end


def _step(part: list[Token], end: Place, profile: str | None) -> Step:
    cursor = Cursor(part, end)
    place, patient = cursor.place, cursor.skip("eventually")
    log: LogText | None = None
    if begins_messages(cursor):
        name, entries = "publish", parse_entries(cursor)
        cursor.skip("with")
        arguments = _arguments(cursor, VERBS[name])
    else:
        name, entries = cursor.take(WORD).text, ()
        if name in VERBS and VERBS[name].takes_log:
            arguments, log = {}, parse_log(cursor)
        else:
            arguments = _called(name, cursor, place)
        name = LOOK if "path" in arguments else name
    saved = cursor.take(WORD).text if cursor.skip("as") else None
    expected: Expectation | None = None
    if cursor.skip("->"):
        expected = (_log_expectation if VERBS[name].answers_log else _expectation)(cursor)
    if not cursor.is_done:
        raise cursor.place.error(f"{cursor.take().text!r} is too much here")
    if patient and expected is None:
        raise place.error("eventually what? An expectation is missing")
    return Step(
        place, as_written(part), name, arguments, entries, expected, saved, profile, patient, log
    )


def _called(name: str, cursor: Cursor, place: Place) -> dict[str, Argument]:
    if name in VERBS and name != "publish":
        return _arguments(cursor, VERBS[name])
    if name.partition(".")[0] in PATHS:
        return {"path": name}
    raise place.error(f"no step is called {name!r}")


def _arguments(cursor: Cursor, called: Verb) -> dict[str, Argument]:
    """Parses words, flags and options up to `as`, `->` or the end. Raises NotationError."""
    found: dict[str, Argument] = {}
    words = list(called.words)
    while not (cursor.is_done or cursor.sees("as") or cursor.sees("->")):
        is_option = cursor.sees_pair()
        token = cursor.take_name()
        if is_option:
            cursor.take("=")
            kind = called.options.get(token.text) or called.options.get(_ANY_OPTION)
            if kind is None:
                raise token.place.error(f"{called.name} has no {token.text}=: {called.usage}")
            found[token.text] = checked(kind, cursor.take_name())
        elif token.text in called.flags:
            found[token.text] = True
        elif words:
            word = words.pop(0)
            found[word.lower()] = checked(word, token)
        else:
            raise token.place.error(f"{token.text!r} is not of {called.usage}")
    if len(called.words) - len(words) < called.required:
        raise cursor.place.error(f"{words[0]} is missing: {called.usage}")
    for missing in called.needed - found.keys():
        raise cursor.place.error(f"{missing}= is missing: {called.usage}")
    return found


def _expectation(cursor: Cursor) -> Expectation:
    if cursor.sees_pair() or cursor.sees_id() or cursor.sees("["):
        return Messages(parse_messages(cursor))
    token = cursor.take()
    if token.kind in _SIGNS or token[:2] == (WORD, "contains"):
        return Value(token.text, cursor.take_name().text)
    if token.kind == WORD:
        return _worded(token, cursor)
    return Value("=", token.text)


def _log_expectation(cursor: Cursor) -> Expectation:
    """Parses a log's text, or an expectation that any answer may have."""
    words = ("nothing", "error", "same", "other")
    is_other = any(map(cursor.sees, words)) or cursor.sees_count()
    if is_other and not cursor.sees_pair():
        expected = _expectation(cursor)
        return LogText(()) if expected == Messages(()) else expected
    return parse_log(cursor)


def _worded(word: Token, cursor: Cursor) -> Expectation:
    match word.text:
        case "nothing":
            return Messages(())
        case "any-order" | "at-least":
            return Messages(parse_messages(cursor), _ORDERS[word.text])
        case "error":
            return Refusal("" if cursor.is_done else cursor.take(WORD).text)
        case "same" | "other" | "part":
            relation = next(each for each in Relation if each.value.startswith(word.text))
            cursor.take(relation.value.split()[1])
            return Saved(cursor.take(WORD).text, relation)
    if cursor.skip("messages") or cursor.skip("records"):
        return Count(int(checked("N", word)))
    return Value("=", word.text)
