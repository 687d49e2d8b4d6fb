"""A Kafka log as text: parsed and shown text are equal, and stored content is compared with it."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

from tests.cases import log_lines, logs, series
from tests.cases.compare import Judge, Names
from tests.cases.lexer import Cursor, NotationError, Place, tokens
from tests.cases.log_lines import parse_log
from tests.cases.logs import NO_HORIZON, LogBatch, LogText
from tests.cases.model import Count, Refusal, Saved
from tests.cases.parser import parse


def log_of(line: str) -> LogText:
    return parse_log(Cursor(tokens(line, 1, 1, "-"), Place("-", 1, len(line) + 1)))


def stored(line: str) -> LogText:
    """As a broker would tell it: nothing is left open."""
    items = (
        replace(
            each,
            pid=-1 if each.pid is None else each.pid,
            codec=each.codec or "none",
            horizon_ms=NO_HORIZON if each.horizon_ms is None else each.horizon_ms,
            records=tuple(one._replace(timestamp_ms=one.timestamp_ms or 0) for one in each.records),
        )
        if isinstance(each, LogBatch)
        else each
        for each in log_of(line).items
    )
    return LogText(tuple(items))


@pytest.mark.parametrize("module", [logs, log_lines, series])
def test_the_docstring_example_is_true(module: object) -> None:
    """Runs the example in the docstring."""
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        "0:A=a0 1:B=∅ | [2:c=1 3:~=keyless] |* 4:D=1",
        "0..2[1:b=x] ~99 3:COMMIT1 4:ABORT 5:{} 6..9:{} ~none",
        "[pid1 0:a=1] [txn2 epoch:1 seq:5 codec:zstd 1:a=1@-5 2:b=2]",
        "[follow 7:a=1] [coordinator 8:a=1]",
        '0:"a key"="x"*100 1:""=""',
    ],
)
def test_printed_logs_can_be_parsed(line: str) -> None:
    """And read again."""
    assert str(log_of(line)) == line
    assert log_of(str(log_of(line))) == log_of(line)


def test_a_series_repeats_everything_since_the_last_one() -> None:
    """Bars too."""
    assert log_of("k<n>=<n*2> | for n=0..1 a=1 [b<n>=1 for n=2..3]") == log_of(
        "k0=0 | k1=2 | a=1 [b2=1 b3=1]"
    )


@pytest.mark.parametrize(
    ("here", "wanted", "is_so"),
    [
        ("0:a=1 | 1:b=1", "0:a=1 1:b=1", True),
        ("0:a=1 | 1:b=1", "0:a=1 |* 1:b=1", False),
        ("0:a=1", "a=1", True),
        ("0:a=1", "0:a=2", False),
        ("0..2[1:a=1]", "1:a=1", False),
        ("0..2[1:a=1]", "0..2[1:a=1]", True),
        ("[0:a=1 1:b=1]", "0:a=1 1:b=1", False),
        ("0:a=∅ ~5", "0:a=∅", True),
        ("0:a=∅ ~5", "0:a=∅ ~6", False),
        ("0:a=∅", "0:a=∅ ~none", True),
        ("0:a=1@5", "0:a=1@5", True),
        ("0:a=1@5", "0:a=1@6", False),
        ("0:ABORT1", "0:ABORT", True),
        ("0:ABORT1", "0:COMMIT", False),
        ("0:ABORT1", "0:{}", False),
        ("[codec:gzip 0:a=1]", "[codec:lz4 0:a=1]", False),
        ("0:a=1", "nothing=1", False),
    ],
)
def test_stored_logs_match_their_text(here: str, wanted: str, is_so: bool) -> None:
    """Omitted parts are not compared; offsets of batches are, if any offset is given."""
    assert stored(here).is_as(log_of(wanted)) is is_so
    difference = Judge(Names(), {}).differs(log_of(wanted), stored(here))
    assert (difference is None) is is_so


def test_a_difference_shows_the_given_details() -> None:
    """So that its lines can be compared by eye."""
    difference = Judge(Names(), {}).differs(log_of("[pid1 0:a=2]"), stored("[pid1 0:a=1] | 1:b=1"))
    assert difference is not None
    assert (difference.expected, difference.got) == ("[pid1 0:a=2]", "[pid1 0:a=1] [pid-1 1:b=1]")


def test_lines_and_steps_of_a_case() -> None:
    """A line of a log is one step, bars and all; in other lines bars end steps."""
    (case,) = parse(
        "T42 A case of Kafka's\n"
        '  kafka cleanup.policy="compact,delete"\n'
        "  log: 0:a=1 |* 1:b=1\n"
        "  append ~=1 -> error 87 | clean | log-read from=1 max=1 -> 1:b=1\n"
        "  left as before | left -> same as before | left -> 2 records\n"
        "  left: 0:a=1 |* 1:b=1\n"
    )
    assert case.is_kafka
    kafka, log, append, _, read, _, same, count, left = case.steps
    assert kafka.arguments == {"cleanup.policy": "compact,delete"}
    assert (log.verb, log.log) == ("append", log_of("0:a=1 |* 1:b=1"))
    assert (append.log, append.expected) == (log_of("~=1"), Refusal("87"))
    assert read.arguments == {"from": "1", "max": 1}
    assert read.expected == log_of("1:b=1")
    assert (same.expected, count.expected) == (Saved("before"), Count(2))
    assert (left.verb, left.expected) == ("left", log_of("0:a=1 |* 1:b=1"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("~5", "-:1:1: a delete horizon stands behind its batch"),
        ("0:a=1 ~x", "-:1:7: '~x' is no delete horizon"),
        ("5:STOP", "-:1:1: '5:STOP' is no batch"),
        ("[codec:rar 0:a=1]", "-:1:2: 'codec:rar' says nothing of a batch"),
        ("x[0:a=1]", "-:1:1: 'x' is no span"),
        ("[]", "-:1:3: a batch has records"),
    ],
)
def test_errors_state_their_place(line: str, message: str) -> None:
    """They list what is allowed there."""
    with pytest.raises(NotationError) as error:
        log_of(line)
    assert str(error.value).startswith(message)
