"""Parses cases; errors state their place."""

from __future__ import annotations

import doctest

import pytest

from tests.cases import parser, protocol
from tests.cases.lexer import NotationError
from tests.cases.model import (
    Case,
    Count,
    Entry,
    Expectation,
    Message,
    Messages,
    Order,
    Refusal,
    Relation,
    Saved,
    Value,
)
from tests.cases.parser import parse
from tests.cases.steps import VERBS


def one_case(*lines: str) -> Case:
    body = "\n".join(f"    {line}" for line in lines)
    (case,) = parse(f"ABC-01 A title\n{body}\n", "a.cases")
    return case


def plain(key: str, value: str) -> Entry:
    return Entry((Message(key, value.encode()),), is_batch=False)


@pytest.mark.parametrize("module", [parser, protocol])
def test_the_docstring_example_is_true(module: object) -> None:
    """Runs the example in the docstring."""
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_a_file_of_cases() -> None:
    """Comments, profiles, options of the broker, lines that go on."""
    first, second = parse(
        "# a comment\n"
        "TOM-08 A value after its tombstone\n"
        "    a=1 | compact\n"
        "        | status -> SUCCESS\n"
        "    pulsar-4: unload\n"
        "\n"
        "TOM-09a Another\n"
        "  broker: --ledger-entries 2\n"
        "  restart\n"
    )
    assert (first.number, first.title) == ("TOM-08", "A value after its tombstone")
    assert [step.verb for step in first.steps] == ["publish", "compact", "status", "unload"]
    assert first.profiles == ("pulsar-4",)
    assert [step.verb for step in first.under("documented")] == ["publish", "compact", "status"]
    assert not first.own_broker
    assert second.options == ("--ledger-entries", "2")


def test_a_case_may_run_under_both_profiles() -> None:
    """A case runs once under each that it names."""
    case = one_case("a=1", "documented: status -> SUCCESS", "pulsar-4: status -> NOT_RUN")
    assert case.profiles == ("documented", "pulsar-4")


@pytest.mark.parametrize("verb", ["restart", "kill"])
def test_a_case_that_stops_the_broker_gets_a_separate_one(verb: str) -> None:
    """Others share one."""
    assert one_case("a=1", verb).own_broker


def test_a_case_that_moves_time_is_marked() -> None:
    """Such a case gets a broker whose clock does not advance."""
    assert one_case("a=1", "advance 1d").moves_time
    assert not one_case("mark now").moves_time


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1 b=2", (plain("a", "1"), plain("b", "2"))),
        ("a=∅", (Entry((Message("a", None),), False),)),
        ('~=x ""=""', (Entry((Message(None, b"x"),), False), plain("", ""))),
        (
            "[a=1@5 b=2{p:q r:s}]",
            (
                Entry(
                    (
                        Message("a", b"1", event_time_ms=5),
                        Message("b", b"2", properties={"p": "q", "r": "s"}),
                    ),
                    is_batch=True,
                ),
            ),
        ),
        (
            r'b"1"=b"\xff"',
            (Entry((Message("MQ==", b"\xff", is_byte_key=True),), is_batch=False),),
        ),
        ("k<n%2>=<n*10> for n=1..3", (plain("k1", "10"), plain("k0", "20"), plain("k1", "30"))),
        (
            "[k<n>=v for n=0..1] ",
            (Entry((Message("k0", b"v"), Message("k1", b"v")), is_batch=True),),
        ),
        ('"<n>"="<n>" for n=1..1', (plain("<n>", "<n>"),)),
    ],
)
def test_published_messages_are_parsed(text: str, entries: tuple[Entry, ...]) -> None:
    """Plain messages, tombstones, batches, bytes, series."""
    assert one_case(text).steps[0].entries == entries


def test_options_of_a_publish() -> None:
    """Behind `with`."""
    step = one_case("[a=1] with compression=LZ4 producer=P sequence=10").steps[0]
    assert step.arguments == {"compression": "LZ4", "producer": "P", "sequence": 10}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", Messages(())),
        ("a=1", Messages((Message("a", b"1"),))),
        ("E2.1 a=1 b=2", Messages((Message("a", b"1", id="E2.1"), Message("b", b"2")))),
        ("E<n> a=<n> for n=7..7", Messages((Message("a", b"7", id="E7"),))),
        ("any-order a=1", Messages((Message("a", b"1"),), Order.ANY)),
        ("at-least a=1", Messages((Message("a", b"1"),), Order.AT_LEAST)),
        ("20 messages", Count(20)),
        ("20", Value("=", "20")),
        (">= 20", Value(">=", "20")),
        ('contains "a b"', Value("contains", "a b")),
        ('""', Value("=", "")),
        ("same as x", Saved("x")),
        ("other than x", Saved("x", Relation.OTHER)),
        ("part of x", Saved("x", Relation.PART)),
        ("error", Refusal()),
        ("error 409", Refusal("409")),
    ],
)
def test_expected_messages_are_parsed(text: str, expected: Expectation) -> None:
    """Tests everything allowed after an arrow."""
    assert one_case(f"H as x | RC-read -> {text}").steps[1].expected == expected


def test_a_step_is_called_with_words_flags_and_options() -> None:
    """Times arrive as milliseconds, numbers as numbers."""
    case = one_case(
        "reader r RC from=E1.0 inclusive queue=0", "expire s older-than=2s", "stats.storageSize"
    )
    reader, expire, look = case.steps
    expected = {"name": "r", "RC": True, "from": "E1.0", "inclusive": True, "queue": 0}
    assert reader.arguments == expected
    assert expire.arguments == {"sub": "s", "older-than": 2000}
    assert (look.verb, look.arguments) == ("look", {"path": "stats.storageSize"})


def test_saved_answers_and_repeated_steps() -> None:
    """`as` saves an answer; `eventually` asks until it is as expected."""
    first, second = one_case("H as before | eventually H -> other than before").steps
    assert (first.save_as, first.patient) == ("before", False)
    assert (second.expected, second.patient) == (Saved("before", Relation.OTHER), True)


def test_a_case_in_one_line() -> None:
    """With a number or without; more lines may follow."""
    first, second, third = parse(
        "a=1 | compact\nBAS-09: b=1 | compact\n    restart\npulsar-4: unload\n"
    )
    assert (first.number, first.title) == ("LINE-1", "a=1 | compact")
    assert [step.verb for step in first.steps] == ["publish", "compact"]
    assert (second.number, second.title) == ("BAS-09", "b=1 | compact")
    assert [step.verb for step in second.steps] == ["publish", "compact", "restart"]
    assert second.steps[1].place == ("-", 2, 15)
    assert (third.number, third.profiles) == ("LINE-4", ("pulsar-4",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bas-01 Lower case\n  a=1", "-:1:1: a case's number is in capitals"),
        ("  a=1", "-:1:3: a line before the first case"),
        ("BAS-01 T\n", "-:1:1: a case without steps"),
        ("BAS-01 T\n  a=1\nBAS-01 U\n  a=1", "-:3:1: BAS-01 is there already"),
        ("BAS-01 T\n  kafka: a=1", "-:2:3: kafka: is no profile"),
        ("BAS-01 T\n  a=1 | compcat", "-:2:9: no step is called 'compcat'"),
        ("BAS-01 T\n  a=1 | unload now", "-:2:16: 'now' is not of unload"),
        ("BAS-01 T\n  seek", "-:2:7: NAME is missing"),
        ("BAS-01 T\n  reader r from=E", "-:2:17: 'E' is no POSITION"),
        ("BAS-01 T\n  consumer c type=Any", "-:2:19: 'Any' is none of Exclusive, Shared"),
        ("BAS-01 T\n  compact max=1", "-:2:11: compact has no max="),
        ("BAS-01 T\n  []", "-:2:4: a batch has messages"),
        ("BAS-01 T\n  [a=1", "-:2:7: the step ends here; ] is missing"),
        ("BAS-01 T\n  a=<m>", "-:2:5: <m>: no `for` gives 'm' a number"),
        ("BAS-01 T\n  a=1 for n=1", "-:2:13: '1' is no range"),
        ("BAS-01 T\n  a=1@x", "-:2:7: 'x' is no time in ms"),
        ("BAS-01 T\n  eventually compact", "-:2:3: eventually what?"),
        ("BAS-01 T\n  H -> same as x", "-:2:3: nothing was saved as x before"),
        ("BAS-01 T\n  H -> same as", "-:2:15: the step ends here"),
        ("BAS-01 T\n  expire s", "-:2:11: older-than= is missing: expire [SUB] older-than"),
        ("BAS-01 T\n  a=v0..2", "-:2:5: 'v0..2' is one text"),
        ("BAS-01 T\n  RC-read -> a=1 [b=1]", "-:2:18: expected messages stand without brackets"),
        ("BAS-01 T\n  H -> 1 2", "-:2:10: '2' is too much here"),
    ],
)
def test_errors_state_place_and_expectation(text: str, message: str) -> None:
    """They state line and column of the mistake, and what is allowed there."""
    with pytest.raises(NotationError) as error:
        parse(text)
    assert str(error.value).startswith(message)


def test_every_verb_has_a_description() -> None:
    """The manual is made of these sentences."""
    assert [name for name, verb in VERBS.items() if not verb.action.__doc__] == []
