"""Tests that `explain` shows the text of a user-defined strategy's class, without harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.cli.topics.explaining import _json, _table
from ledgerfold.broker.explain.scan import Explainer
from ledgerfold.broker.explain.words import MESSAGES_MAX
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.strategies.words import WORDS_MAX, words_of
from ledgerfold.v1.compactor_pb2 import (
    DescribedDecision,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
)
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.explain_pb2 import ExplainRequest, ExplainResponse
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

Answer = Callable[[DescribeDecisionsRequest], DescribeDecisionsResponse]


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    """Builds a lab of two messages of key a and one of b, under a user-defined strategy."""
    lab = BrokerLab()
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    lab.publish([([Message(key, value)], False) for key, value in [(b"a", b"1"), (b"b", b"x")]])
    lab.publish([([Message(b"a", b"2")], False)])
    lab.topic.record.policies.compaction_strategy.name = "shop:Best"
    yield lab
    lab.stop()


def explained(lab: BrokerLab, answer: Answer, *, at: int | None = None) -> ExplainResponse:
    """Explains key a, or one of its messages."""

    async def describe_decisions(request: DescribeDecisionsRequest) -> DescribeDecisionsResponse:
        return answer(request)

    lab.compactor.describe_decisions = describe_decisions  # type: ignore[method-assign]
    request = ExplainRequest(topic=TOPIC, key=b"a")
    if at is not None:
        first = explained(lab, answer).versions[at].id
        request = ExplainRequest(topic=TOPIC, message_id=first)
    return lab.run(Explainer(lab.broker).explain([lab.topic], request))


def test_a_strategy_is_asked_about_the_messages_of_the_key(lab: BrokerLab) -> None:
    """It gets them with all parts, in order; its texts appear at their versions."""
    asked: list[DescribeDecisionsRequest] = []

    def answer(request: DescribeDecisionsRequest) -> DescribeDecisionsResponse:
        asked.append(request)
        return DescribeDecisionsResponse(
            choices=[DescribedDecision(left=0, right=1, words="2 beats 1")]
        )

    first, second = explained(lab, answer).versions
    (request,) = asked
    assert request.strategy.name == "shop:Best"
    assert [(each.key, each.value) for each in request.messages] == [(b"a", b"1"), (b"a", b"2")]
    assert (first.words, second.words, second.words_left) == ("", "2 beats 1", first.id)
    row = _json(second)
    assert (row["words"], row["words_against"]) == ("2 beats 1", _json(first)["id"])
    told = f'; against {row["words_against"]} its class says: "2 beats 1"'
    assert _table(second)["what"] == second.what + told
    (alone,) = explained(lab, answer, at=1).versions
    assert alone.words == "2 beats 1"


def unavailable(request: DescribeDecisionsRequest) -> DescribeDecisionsResponse:
    raise CompactorUnavailable("The compactor is off.")


def nonsense(request: DescribeDecisionsRequest) -> DescribeDecisionsResponse:
    places = [(0, 0), (1, 0), (-1, 1), (0, 2), (0, 9)]
    return DescribeDecisionsResponse(
        choices=[DescribedDecision(left=left, right=right, words="no") for left, right in places]
    )


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (unavailable, "shop:Best was asked to explain: The compactor is off."),
        (lambda _: DescribeDecisionsResponse(why="it hangs"), "was asked to explain: it hangs."),
        (nonsense, ""),
    ],
)
def test_errors_of_a_strategy_become_notes(lab: BrokerLab, answer: Answer, note: str) -> None:
    """The versions are explained as before."""
    told = explained(lab, answer)
    assert [each.words for each in told.versions] == ["", ""]
    assert [each.next for each in told.versions] == [
        "the code of 'shop:Best' decides; only the next run shows its decision"
    ] * 2
    assert any(note in each for each in told.notes)


def test_a_disallowed_strategy_is_not_asked(lab: BrokerLab) -> None:
    """Asking it would load it. A test asked every rpc of a worker, and none asked `explain`."""
    lab.broker.settings = replace(lab.broker.settings, allowed_strategies=AllowedStrategies())

    def answer(request: DescribeDecisionsRequest) -> DescribeDecisionsResponse:
        raise AssertionError("asked")

    told = explained(lab, answer)
    assert any("this broker does not allow it" in each for each in told.notes)


def test_the_number_of_messages_in_a_question_is_bounded(lab: BrokerLab) -> None:
    """It gets the newest messages; some are too large together."""
    sizes: list[list[int]] = []

    def answer(request: DescribeDecisionsRequest) -> DescribeDecisionsResponse:
        sizes.append([len(each.value) for each in request.messages])
        return DescribeDecisionsResponse()

    lab.publish([([Message(b"a", b"3")], False) for _ in range(MESSAGES_MAX)])
    explained(lab, answer)
    lab.publish([([Message(b"a", bytes(3 << 20))], False) for _ in range(3)])
    assert len(explained(lab, answer).versions) == MESSAGES_MAX + 5
    assert [len(each) for each in sizes] == [MESSAGES_MAX, 2]


class Says:
    def __init__(self, answer: object) -> None:
        self._answer = answer

    def explain(self, left: object, right: object) -> object:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


@given(st.text() | st.integers() | st.none() | st.binary())
def test_explanations_are_one_short_line(answer: object) -> None:
    """Tests any answer, and text that can be sent."""
    words = words_of(Says(answer), 1, 2)
    assert words is None or len(words) <= WORDS_MAX
    assert words is None or (len(words.splitlines()) == 1 and words.encode())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("a\n  b\ud800", "a b?"),
        ("x" * 400, "x" * (WORDS_MAX - 1) + "…"),
        (ValueError("no\nway"), "(its explain raised ValueError: no)"),
        (SystemExit(), "(its explain raised SystemExit)"),
        (b"bytes", "(its explain returned bytes, not a string)"),
    ],
)
def test_invalid_explanations_become_a_note(answer: object, words: str) -> None:
    """The only result is a note."""
    assert words_of(Says(answer), 1, 2) == words
