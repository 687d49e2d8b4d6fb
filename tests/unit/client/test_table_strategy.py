"""Table views with a strategy: they end up as the topic once that strategy has compacted it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.core.table import Table
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.strategies import HeaderVersion, KeepFirst, Newest, Numeric
from tests.model.strategic_model import Said, strategic
from tests.support.strategic_classes import Everything, Raises, Stubborn, Vague
from tests.unit.client.test_table import listening, messages

KEYS = st.sampled_from([None, "", "a", "b"])
VALUES = st.sampled_from([b"", b"1", b"2", b"-3.5", b"two", b"xx"])
STRATEGIES = st.sampled_from(
    [Newest(), KeepFirst(), Numeric(), HeaderVersion("v"), Everything(), Stubborn()]
)


@given(STRATEGIES, st.lists(st.tuples(KEYS, VALUES), max_size=20), st.data())
def test_a_view_equals_the_compacted_topic(
    strategy: Any, sent: list[tuple[str | None, bytes]], data: st.DataObject
) -> None:
    """Compares a view of all messages and a view of a run's output and the rest; skipped
    ones too.
    """
    said = [Said(key, value, publish_time_ms=1) for key, value in sent]
    Stubborn.skipped.clear()
    left = strategic(said, strategy).left
    skipped, Stubborn.skipped[:] = list(Stubborn.skipped), []
    table = Table(bytes, strategy)
    table.apply(messages(*sent))
    assert Stubborn.skipped == skipped
    compacted_to = data.draw(st.integers(0, len(said)))
    compacted = strategic(said[:compacted_to], strategy).left
    late = Table(bytes, strategy)
    late.apply(messages(*((each.key, each.value) for each in compacted)))
    late.apply(messages(*sent[compacted_to:]))
    assert table.snapshot() == late.snapshot() == {each.key: each.value for each in left}


def test_skipped_messages_reach_no_listener() -> None:
    """But the strategy."""
    Stubborn.skipped.clear()
    table = Table(bytes, Stubborn())
    heard = listening(table)
    table.apply(messages(("a", b"1"), ("a", b"x2"), ("b", b"x3"), ("a", b"")))
    assert heard == [("a", b"1"), ("a", None)]
    assert Stubborn.skipped == [("a", b"x2"), ("b", b"x3")]


@pytest.mark.parametrize(
    ("strategy", "told"),
    [(Raises(), "LookupError: no such price"), (Vague(), "returned 1, which is not a bool")],
)
def test_a_failing_strategy_is_logged(
    strategy: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the message, which changes nothing; others are applied."""
    table = Table(bytes, strategy)
    with caplog.at_level(logging.ERROR):
        table.apply(messages(("a", b"1"), ("a", b"two"), ("b", b"2")))
    assert table.snapshot() == {"a": b"1", "b": b"2"}
    assert told in caplog.text
    assert "0:0:-1:1" in caplog.text


def test_a_client_accepts_a_strategy(client: Client) -> None:
    with client.create_producer("t") as producer:
        for number in (5, 3, 7, 6):
            producer.send(b"%d" % number, partition_key="a")
    assert client.create_table_view("t", strategy=Numeric()).snapshot() == {"a": b"7"}
    with pytest.raises(InvalidRequest, match="must be an object with should_keep_left: <class"):
        client.create_table_view("t", strategy=Numeric)  # type: ignore[arg-type]
