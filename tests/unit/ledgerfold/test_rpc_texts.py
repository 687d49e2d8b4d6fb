"""Text over gRPC has bounds: in requests, in errors, in responses."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.rpc_errors import CODES, _status
from ledgerfold.rpc_texts import (
    REPEATED_MAX,
    TEXT_CHARACTERS_MAX,
    TEXTS_MAX,
    VALUES_MAX,
    cut_arguments,
    cut_texts,
    remember_names,
    remember_request,
    take_request,
)
from ledgerfold.storage.errors import InvalidRequest, SubscriptionNotFound, TopicNotFound
from ledgerfold.v1 import admin_pb2, kafka_pb2
from ledgerfold.v1.records_pb2 import Action
from ledgerfold.v1.what_if_pb2 import CleaningTrial, ReplaySetting, WhatIfRequest
from tests.support.odd_texts import ODD


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (admin_pb2.CreateTopicRequest(topic="x" * (TEXT_CHARACTERS_MAX + 1)), "topic"),
        (kafka_pb2.SetKafkaConfigRequest(set={"a": "x" * 20_000}), "set"),
        (kafka_pb2.PlanCleaningRequest(topics=["t"] * (TEXTS_MAX + 1)), "topics"),
        (
            kafka_pb2.SetKafkaConfigRequest(set={str(each): "" for each in range(TEXTS_MAX + 1)}),
            "set",
        ),
        (WhatIfRequest(replays=[ReplaySetting()] * (TEXTS_MAX + 1)), "replays"),
        (
            admin_pb2.GrantPermissionRequest(actions=[Action.ACTION_PRODUCE] * (TEXTS_MAX + 1)),
            "actions",
        ),
    ],
)
def test_fields_too_large_for_any_request_are_refused(
    request_: admin_pb2.CreateTopicRequest, field: str
) -> None:
    """The error names the field, and fits."""
    why = rf"^The field {field} of this \w+ has .*; at most \d+ are allowed"
    with pytest.raises(InvalidRequest, match=why) as raised:
        take_request(request_)
    assert len(raised.value.message) < 400
    take_request(admin_pb2.CreateTopicRequest(topic="x" * TEXT_CHARACTERS_MAX))


def test_lists_in_lists_are_counted_together() -> None:
    """No test had a request of many lists, each of which is short enough."""
    trial = CleaningTrial(config={str(each): "" for each in range(VALUES_MAX // 4)})
    take_request(WhatIfRequest(trials=[trial] * 3))
    with pytest.raises(InvalidRequest, match=r"^The lists of this WhatIfRequest have more than"):
        take_request(WhatIfRequest(trials=[trial] * 4))


class _Uncountable(Sequence[int]):
    """A list of a given length, whose values nobody may look at."""

    def __len__(self) -> int:
        return TEXTS_MAX + 1

    def __getitem__(self, at: Any) -> Any:
        raise AssertionError("A list that is too long was looked into.")


def test_a_list_that_is_too_long_is_not_looked_into() -> None:
    """Only lists of text had been refused by their length; all others were walked first."""
    field = WhatIfRequest.DESCRIPTOR.fields_by_name["replays"]

    class Request:
        DESCRIPTOR = WhatIfRequest.DESCRIPTOR

        def ListFields(self) -> Any:  # noqa: N802
            return [(field, _Uncountable())]

    request: Any = Request()
    with pytest.raises(InvalidRequest, match="replays"):
        take_request(request)


def test_names_are_all_that_an_early_error_may_quote() -> None:
    """Before the caller is known to be permitted, only names are looked for in an error."""

    def cut() -> str:
        remember_names("", "n" * 500, "m" * (3 * TEXT_CHARACTERS_MAX))
        return cut_arguments(f"May not {'n' * 500} {'m' * 500} {'x' * 300}.")

    found = contextvars.copy_context().run(cut)
    assert "x" * 300 in found
    assert "n" * (REPEATED_MAX + 1) not in found
    assert "m" * (REPEATED_MAX + 1) not in found


@given(
    text=st.text(min_size=150, max_size=2000),
    begin=st.integers(0, 500),
    end=st.integers(0, 2000),
    around=st.tuples(st.text(max_size=60), st.text(max_size=60)),
)
def test_no_long_part_of_an_argument_is_repeated_in_an_error(
    text: str, begin: int, end: int, around: tuple[str, str]
) -> None:
    """As a whole, in part, raw or as Python's repr; other text stays."""
    part = text[begin:end]
    message = f"{around[0]}{part}<{part!r}>{around[1]}"

    def cut() -> str:
        remember_request(admin_pb2.CreateTopicRequest(topic=text))
        return cut_arguments(message)

    found = contextvars.copy_context().run(cut)
    if len(text) <= REPEATED_MAX:
        assert found == message
        return
    for form in (text, repr(text)[1:-1]):
        windows = range(len(found) - REPEATED_MAX)
        assert not any(found[at : at + REPEATED_MAX + 1] in form for at in windows)


@pytest.mark.parametrize("text", [each for each in ODD.values() if len(each) < 100_000])
def test_an_error_fits_into_a_header(text: str) -> None:
    """A client of gRPC takes 8 KiB of them; no test had sent it more."""
    for error in (
        TopicNotFound(text * 9, text * 9),
        SubscriptionNotFound(text * 9, text * 9),
        InvalidRequest(f"{text * 40} Do something else."),
    ):
        status = _status(error, CODES[error.reason])
        details = status.details.encode()
        written = sum(1 if 0x20 <= byte <= 0x7E else 3 for byte in details)
        ((_, detail),) = status.trailing_metadata
        assert written + len(detail) < 7_000
        assert not {"\0", "\x1b", "\r"} & set(status.details)
    assert status.details.endswith("Do something else.")


def test_a_too_large_response_is_cut() -> None:
    """Every text in it is cut, at any nesting."""
    long = "x" * (2 * TEXT_CHARACTERS_MAX)
    response = admin_pb2.GetCompactionStatusResponse(last_error=long)
    response.run.strategy_settings[long] = long
    response.partitions.add(last_error=long)
    cut_texts(response)
    assert response.ByteSize() < 5 * TEXT_CHARACTERS_MAX
    assert response.partitions[0].last_error == long[:TEXT_CHARACTERS_MAX]
    listed = admin_pb2.ListTopicsResponse(topics=[long, "t"])
    cut_texts(listed)
    assert list(listed.topics) == [long[:TEXT_CHARACTERS_MAX], "t"]
