"""Errors survive the wire: each class of the tree arrives as itself."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from ledgerfold.rpc_errors import CODES
from ledgerfold.storage.error_codec import MESSAGE_BYTES_MAX, decode_error, encode_error
from ledgerfold.storage.errors import (
    CompactionError,
    CompactionFailed,
    Corruption,
    DiskFailure,
    KafkaError,
    KafkaErrorKind,
    LedgerfoldError,
    SubscriptionBusy,
)


def classes(root: type[LedgerfoldError] = LedgerfoldError) -> Iterator[type[LedgerfoldError]]:
    yield root
    for each in root.__subclasses__():
        yield from classes(each)


# Some classes of one room share the reason of their base. In an order: workers that share the tests
# must find the same ones.
WITH_REASON = sorted(
    {cls for cls in classes() if "reason" in vars(cls)} - {CompactionError},
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", WITH_REASON, ids=lambda cls: cls.__name__)
def test_each_reason_means_one_class(cls: type[LedgerfoldError]) -> None:
    """CompactionError alone has none: it is only for `except`."""
    found = decode_error(cls.reason, "What happened.", {})
    assert type(found) is cls
    assert (found.message, found.retryable) == ("What happened.", cls.retryable)


def test_every_reason_has_a_code_and_every_code_a_reason() -> None:
    assert set(CODES) == {cls.reason for cls in classes()}


@pytest.mark.parametrize(
    "error",
    [
        Corruption("1/0.log", 72, "its CRC", "another"),
        SubscriptionBusy("t", "s", "it is exclusive."),
        CompactionFailed("phase one", "the worker died", worker_died=True),
        CompactionFailed("phase one", "out of memory"),
        DiskFailure("1/0.log", "Writing", OSError(errno.ENOSPC, "No space left on device")),
        DiskFailure("1/0.log", "Writing", OSError(errno.EIO, "Input/output error")),
        KafkaError(KafkaErrorKind.INVALID_RECORD, "One or more records have been rejected"),
    ],
)
def test_attributes_come_back_with_their_types(error: LedgerfoldError) -> None:
    """Tests the attributes that are sent; the other side uses no others, except for the origin."""
    found = decode_error(*encode_error(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    told = vars(found)
    assert told.pop("from_broker")
    assert told.items() <= vars(error).items()
    assert told


def test_errors_of_a_newer_version_are_decoded_as_far_as_possible() -> None:
    found = decode_error("BROKEN_CLOCK", "It stands.", {"hour": "25", "offset": "late"})
    assert type(found) is LedgerfoldError
    assert (found.message, vars(found)) == ("It stands.", {"from_broker": True})


def test_a_kafka_error_keeps_its_kind() -> None:
    """The code decides; an error from a newer version keeps code and class."""
    for kind in KafkaErrorKind:
        found = decode_error(*encode_error(KafkaError(kind, "No.")))
        assert isinstance(found, KafkaError)
        assert (found.kind, found.kafka_code, found.kafka_class) == (kind, *kind.value)
    newer = {"kafka_code": "999", "kafka_class": "LateException"}
    found = decode_error("KAFKA", "No.", newer)
    assert isinstance(found, KafkaError)
    assert (found.kind, found.kafka_code, found.kafka_class) == (None, 999, "LateException")


def test_a_too_long_text_is_cut_in_the_middle() -> None:
    """One that just fits stays whole. No test of this room had had long texts."""
    fits = "a" * MESSAGE_BYTES_MAX
    assert encode_error(LedgerfoldError(fits)).message == fits
    found = encode_error(LedgerfoldError(f"b{fits}c")).message
    assert len(found) <= MESSAGE_BYTES_MAX
    assert (found[0], found[-1]) == ("b", "c")
